"""One language for both runs: what a kernel's source may hold, how its parameters are read, what is refused and why."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time

import pytest
import torch

from kvcourse.cuda import CompileError, Kernel, LaunchError
from kvcourse.cuda.cpu.prepare import prepare

BODY = "{ out[threadIdx.x] = 1.0f; }"
KERNEL = 'extern "C" __global__ void k(float* out) ' + BODY


def refusal(source: str, name: str = "k", template: str | None = None) -> str:
    with pytest.raises(CompileError) as error:
        Kernel(source, name, template).compile()
    return str(error.value)


def parameters(source: str, name: str = "k", template: str | None = None) -> list[tuple]:
    return [(p.name, p.type, p.pointer, p.writes) for p in Kernel(source, name, template).signature.parameters]


def test_parameters_are_read_from_the_source():
    source = """
    // __global__ void k(int decoy)
    extern "C" __global__ void __launch_bounds__(128, 2) k(const float* __restrict__ a, float *b,
        unsigned long long int n, /* half */ const int* const table, float scale, bool flag, size_t m,
        long long slots[]) {}
    """
    assert parameters(source) == [
        ("a", "float", True, False),
        ("b", "float", True, True),
        ("n", "unsigned long long", False, False),
        ("table", "int", True, False),
        ("scale", "float", False, False),
        ("flag", "bool", False, False),
        ("m", "size_t", False, False),
        ("slots", "long long", True, True),
    ]


def test_template_arguments_and_aliases_name_types():
    source = """
    #include <cuda_fp16.h>
    using number = __half;
    typedef int index;
    #define KERNEL __global__ void
    template <typename T, int D, class U = number> KERNEL k(T* out, const U* in, index n, float4* four) {}
    """
    assert [p[1] for p in parameters(source, template="float, 64")] == ["float", "__half", "int", "float4"]
    assert [p[1] for p in parameters(source, template="<half, 64, float>")] == ["__half", "float", "int", "float4"]
    assert Kernel(source, "k", "float, 64").signature.instance == "k<float, 64>"


def test_the_right_kernel_is_found_among_others():
    source = "__device__ float f(float x) { return x; }\nstruct S { int a; };\n__constant__ float c[2] = {1, 2};\n"
    source += "__global__ void first(int a) {}\nnamespace { __device__ int g; }\n__global__ void second(float* b) {}"
    assert parameters(source, "second") == [("b", "float", True, True)]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("// nothing yet\n/* at all */", ["no code", "only comments"]),
        ("__device__ int f() { return 1; }", ["no kernel", "__global__"]),
        (KERNEL.replace("k(", "kernal("), ["'k'", "kernal"]),
        ("__global__ int k(float* out) { return 1; }", ["line 1", "void"]),
        ("__global__ void k(float** out) {}", ["out", "simple pointer"]),
        ("struct P { int a; };\n__global__ void k(P p) {}", ["line 2", "p has the type P"]),
        ("template <int N> __global__ void k(float* out) {}", ["template <int N>", "template="]),
        ("__global__ void k(float* out) { out[0] = 1.0f; ", ["never closed"]),
    ],
)
def test_a_source_without_the_kernel_is_refused_in_one_sentence(source, words):
    message = refusal(source)
    assert all(word.lower() in message.lower() for word in words), message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("#include <cuda_runtime.h>\n" + KERNEL, ["Line 1", "host code"]),
        ("#include <cstdint>\n" + KERNEL, ["Line 1", "NVRTC"]),
        ("#include <vector>\n" + KERNEL, ["vector", "cuda_fp16.h"]),
        ("int f(int a) { return a; }\n" + KERNEL, ["f is a host function", "__device__"]),
        ("template <class T> T f(T a) { return a; }\n" + KERNEL, ["f is a host function"]),
        ("struct S {\n  int a;\n  int f() { return a; }\n};\n" + KERNEL, ["Line 3", "f is a host function"]),
        ("int main() {}\n" + KERNEL, ["main is a host function"]),
        ("int counter = 0;\n" + KERNEL, ["counter is a host variable"]),
        (KERNEL + "\n__global__ void run(float* o) { k<<<1, 32>>>(o); }", ["Line 2", "<<<"]),
        (KERNEL.replace("{", '{ asm("nop");'), ["inline assembly"]),
        (KERNEL.replace("1.0f", "std::max(1, 2)"), ["std"]),
        (KERNEL.replace("{", "{ float* p = new float[4];"), ["new", "memory"]),
        (KERNEL.replace("{", "{ __shared__ float s = 1.0f;"), ["__shared__", "initial value"]),
        (KERNEL.replace("1.0f", "__reduce_add_sync(~0u, 1)"), ["sm_80", "shuffles"]),
        (KERNEL.replace("1.0f", "__nonsense(1)"), ["__nonsense"]),
        (
            "#define F __device__\n#define G F int f() { return __builtin_popcount(3); }\n" + KERNEL,
            ["Line 2", "__builtin"],
        ),
        ("#pragma GCC optimize(3)\n" + KERNEL, ["pragma"]),
        ("#define GLUE(a, b) a##b\n" + KERNEL, ["##"]),
        ("extern __device__ int there;\n" + KERNEL, ["extern"]),
    ],
)
def test_what_nvrtc_refuses_is_refused_here_too(source, words):
    message = refusal(source)
    assert all(word in message for word in words), message
    assert "\n" not in message


@pytest.mark.parametrize(
    "source",
    [
        '#include "/etc/passwd"\n',
        "#include </etc/passwd>\n",
        "#/**/include </etc/passwd>\n",
        "# \\\n  include </etc/passwd>\n",
        '#define F "/etc/passwd"\n#include F\n',
        "#include_next <stdio.h>\n",
        '#import "/etc/passwd"\n',
        '#embed "/etc/passwd"\n',
        '%:include "/etc/passwd"\n',
        '??=include "/etc/passwd"\n',
        '#line 1 "/etc/passwd"\n',
        '# 1 "/etc/passwd"\n',
        '#ident "x"\n',
        '_Pragma("GCC dependency \\"/etc/passwd\\"")\n',
        '__device__ int a __attribute__((section("x\\n.incbin \\"/etc/passwd\\"")));\n',
        '[[gnu::section("x")]] __device__ int a;\n',
        'extern "C" int system(const char*);\n',
        '__device__ int x asm("y");\n',
        '__device__ void f() { as\\\nm("nop"); }\n',
        '/\\\n* "*/ __asm__(".incbin \\"/etc/passwd\\""); //"\n',
        "#if __has_include(</etc/passwd>)\n#endif\n",
        '__device__ const char* f = R"(x)";\n',
    ],
)
def test_nothing_reaches_outside_at_compile_time(source):
    assert "root:" not in refusal(source + KERNEL)


@pytest.mark.parametrize(
    "piece",
    [
        "static ",
        "__shared__ ",
        "extern __shared__ a ",
        "'a' ",
        "//\n",
        "/* */",
        "((",
        "template <",
        "#define A ",
        '"x" ',
        "a<b ",
        "typedef ",
        "using a = b ",
    ],
)
def test_reading_a_long_source_takes_no_time(piece):
    before = time.monotonic()
    with contextlib.suppress(CompileError):
        prepare(piece * (100_000 // len(piece)))
        Kernel(piece * (100_000 // len(piece)) + "\n" + KERNEL, "k").signature  # noqa: B018
    assert time.monotonic() - before < 5


def test_host_functions_cannot_be_called_by_declaring_them_for_the_device():
    message = refusal(
        'extern "C" __device__ int system(const char* command);\n' + KERNEL.replace("1.0f", 'system("true")')
    )
    assert "system" in message


def test_a_stub_says_that_it_is_not_started():
    source = '__global__ void write_kv(float* pool, int n) {\n#error "chunked.3: write new keys and values"\n}'
    for use in (
        lambda k: k.compile(),
        lambda k: k.launch(1, 32, torch.zeros(1), 1),
        lambda k: k.check(1, 32, torch.zeros(1), 1),
        lambda k: k.compile_for("sm_75"),
    ):
        with pytest.raises(NotImplementedError, match=r"^chunked\.3: write new keys and values$"):
            use(Kernel(source, "write_kv"))


def test_the_compilers_words_name_the_line_of_the_cell():
    source = KERNEL.replace("1.0f", "flot(1)")
    assert "line 1: " in refusal(source) and "flot" in refusal(source)
    with pytest.raises(CompileError, match="line 7: "):
        Kernel(source, "k", first_line=7).compile()
    with pytest.raises(CompileError, match="Line 9: std"):
        Kernel("\n\n" + KERNEL.replace("1.0f", "std::max(1, 2)"), "k", first_line=7).compile()


def test_what_if_0_takes_out_is_not_read():
    Kernel("#if 0\nint main() { asm(x); }\n#endif\n" + KERNEL, "k").compile()


@pytest.mark.parametrize(
    ("grid", "block", "shared", "words"),
    [
        (1, 2048, 0, ["block.x is 2,048", "1,024"]),
        (1, (32, 64), 0, ["2,048 threads"]),
        (1, (1, 1, 65), 0, ["block.z", "64"]),
        (0, 32, 0, ["grid.x", "1 to"]),
        ((1, 70_000), 32, 0, ["grid.y", "65,535"]),
        ((1, 2, 3, 4), 32, 0, ["one to three"]),
        (1.5, 32, 0, ["grid"]),
        (1, 32, 50_000, ["50,000", "49,152"]),
        (1, 32, -1, ["shared"]),
    ],
)
def test_a_launch_beyond_cudas_limits_is_one_sentence(grid, block, shared, words):
    for run in (Kernel(KERNEL, "k").launch, Kernel(KERNEL, "k").check):
        with pytest.raises(LaunchError) as error:
            run(grid, block, torch.zeros(32), shared=shared)
        assert all(word in str(error.value) for word in words), error.value
        assert "\n" not in str(error.value)


def test_too_much_shared_memory_is_refused_before_anything_runs():
    arrays = KERNEL.replace("{", "{ __shared__ float s[20000]; s[threadIdx.x] = 1.0f;")
    with pytest.raises(CompileError, match=r"80,000 bytes; a block has 49,152"):
        Kernel(arrays, "k").compile()
    both = KERNEL.replace("1.0f", "s[31 - threadIdx.x]").replace(
        "{", "{ __shared__ float s[10000]; s[threadIdx.x] = 1; __syncwarp();"
    )
    with pytest.raises(LaunchError, match=r"wants 50,000 bytes of shared memory"):
        Kernel(both, "k").launch(1, 32, torch.zeros(32), shared=10_000)


def test_importing_kernels_imports_no_torch():
    code = "import sys, kvcourse.cuda.kernel, kvcourse.cuda.magic\n"
    code += "assert not {'torch', 'numpy', 'matplotlib'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_no_compiler_says_how_to_get_one(monkeypatch):
    from kvcourse.cuda.cpu import compilers

    monkeypatch.setattr(compilers.shutil, "which", lambda _: None)
    monkeypatch.setattr(compilers.importlib.util, "find_spec", lambda _: None)
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(CompileError, match="pip install ziglang"):
        Kernel(KERNEL, "k").compile()
    monkeypatch.setenv("CXX", "/no/such/compiler")
    with pytest.raises(CompileError, match=r"\$CXX is '/no/such/compiler'"):
        Kernel(KERNEL, "k").compile()


@pytest.mark.parametrize("word", ["const", "float", "int", "if(x)", "__global__", "__syncthreads()", "threadIdx"])
def test_words_of_the_language_keep_their_meaning(word):
    for directive in ("define", "undef"):
        message = refusal(f"#{directive} {word} long long\n{KERNEL}")
        assert f"Line 1: {word.split('(')[0]} keeps its meaning" in message


def test_macros_of_other_names_may_stand_for_words():
    source = "#define KERNEL __global__ void\n#define T float\n#define max2(a, b) ((a) > (b) ? (a) : (b))\n"
    assert parameters(source + "KERNEL k(T* out, const T* in) {}") == [
        ("out", "float", True, True),
        ("in", "float", True, False),
    ]


def test_a_kernel_jumps_to_names_only():
    source = KERNEL.replace(BODY, "{ void* p = &&end; goto *p; end: out[0] = 1.0f; }")
    assert "Line 1: a kernel jumps to names only" in refusal(source)


def test_printf_cannot_write():
    body = '{ int count = 5; printf("%d%-08.3lln", 1, &count); printf("%d %%n", 2); out[threadIdx.x] = count; }'
    out = torch.zeros(1)
    report = Kernel(KERNEL.replace(BODY, body), "k").check(1, 1, out)
    assert report and out.item() == 5 and report.output == "2 %n"


@pytest.mark.parametrize(
    "deep",
    [
        "struct a {" * 8_000 + "};" * 8_000,
        "#define T a0\n" + "".join(f"#define a{i} a{i + 1}\n" for i in range(4_000)) + "__global__ void k(T x) {}",
    ],
)
def test_what_is_nested_too_deep_is_refused(deep):
    with pytest.raises(CompileError, match="nested too deep"):
        Kernel(deep, "k").signature  # noqa: B018
