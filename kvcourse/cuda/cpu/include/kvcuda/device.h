// What NVRTC offers a kernel without any #include, for the CPU. No system header is used, so a kernel finds here
// what it would find there and nothing else.
#pragma once
#include "interface.h"
#include "keywords.h"
#include "vectors.h"
#include "threads.h"
#include "warp.h"
#include "atomics.h"
#include "maths.h"
#include "entry.h"
