"""Kernels that a student could hand in to get points without the work, or to do harm: only their text is data here.

Each stands where the lesson of kernel_lesson.py asks for `scale`; some would be right but for what they do besides.
"""

from __future__ import annotations

from kernel_lesson import BODY, RIGHT, SCALE

HOSTILE: dict[str, str] = {
    "reads a file": '#include "/etc/passwd"\n' + SCALE,
    "reads a header": "#include <fstream>\n" + SCALE,
    "reads by macro": '#define F "/etc/passwd"\n#include F\n' + SCALE,
    "asks for a file": '#if __has_include("/etc/passwd")\n' + SCALE + "\n#endif",
    "assembly": SCALE.replace(RIGHT, f'asm("nop"); {RIGHT}'),
    "assembly by macro": "#define A asm\n" + SCALE.replace(RIGHT, f'A("nop"); {RIGHT}'),
    "built-in": SCALE.replace(RIGHT, f"{RIGHT} __builtin_trap();"),
    "host function": '#include <cuda_fp16.h>\nextern "C" int system(const char*);\n' + SCALE,
    "device system": 'extern "C" __device__ int system(const char*);\n'
    + SCALE.replace(RIGHT, f'system("true"); {RIGHT}'),
    "constructor": "struct S { int v; __device__ S() : v(1) {} };\n__device__ S s;\n"
    + SCALE.replace(RIGHT, f"{RIGHT} if (s.v == 7) out[i] = 0;"),
    "templates without end": "template <int N> struct F { static constexpr int v = F<N + 1>::v; };\n"
    + SCALE.replace(RIGHT, f"{RIGHT} out[0] = F<0>::v;"),
    "long names": "template <class A, class B> struct P {};\ntemplate <int N> struct D { using t = P<typename"
    " D<N - 1>::t, typename D<N - 1>::t>; };\ntemplate <> struct D<0> { using t = int; };\n"
    + SCALE.replace(RIGHT, f"{RIGHT} int no = D<22>::t();"),
    "huge shared array": SCALE.replace(BODY, f"__shared__ float all[1 << 28];\n  all[0] = 1; {BODY}"),
    "huge local array": SCALE.replace(BODY, f"float all[1 << 28];\n  all[n] = 1; {BODY}"),
    "const taken away": "#define const\n" + SCALE,
    "float is double": "#define float double\n" + SCALE,
    "if is always true": "#define if(x) if (true)\n" + SCALE,
    "the executor's macro": "#ifdef KVCUDA_CHECK\n" + SCALE + "\n#endif",
    "the executor's names": SCALE.replace(RIGHT, f"kvcuda_running = 0; {RIGHT}"),
    "the compiler's macro": "#ifdef __OPTIMIZE__\n" + SCALE + "\n#endif",
    "writes to an input": SCALE.replace(RIGHT, f"{RIGHT} if (i < n) ((T*)x)[i] = out[i];"),
    "writes to an input what it held": SCALE.replace(RIGHT, f"{RIGHT} if (i < n) ((T*)x)[i] = x[i];"),
    "remembers launches": "__device__ int launches;\n"
    + SCALE.replace(RIGHT, "if (i == 0) atomicAdd(&launches, 1);\n  __syncthreads();\n  if (launches > 1) " + RIGHT),
    "other parameters": SCALE.replace("float a, int n", "float a, long long n"),
    "a wild address": SCALE.replace(RIGHT, f"{RIGHT} *(int*)0x7fff12345678 = 1;"),
    "a jump to anywhere": SCALE.replace(RIGHT, f"{RIGHT} ((void (*)())0x41414141)();"),
    "its own stack": SCALE.replace(RIGHT, f"{RIGHT} volatile long long s[2]; for (int k = 0; k < 64; k++)"
    " ((volatile long long*)s)[k] = 0x41414141;"),
    "printf that writes": SCALE.replace(RIGHT, 'int c = 7; printf("%n", &c); if (c == 0) ' + RIGHT),
    "no text": "\0" + SCALE,
    "too long": SCALE + "\n// " + "x" * 150_000,
    "all brackets": SCALE + "{" * 50_000,
    "all structs": SCALE + "struct a {" * 8_000 + "};" * 8_000,
}  # fmt: skip
