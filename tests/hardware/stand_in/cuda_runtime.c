/* CUDA's runtime and cuBLAS under torch, without a GPU: memory is the host's, copies copy, events have the host's
   clock, and kernels do nothing. Memory is filled with ones by byte, which are finite numbers of every type and true. What is
   not here returns 0 (see __main__.py). */
#define _GNU_SOURCE
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef cudaError_t result;
typedef struct { double ms; } event;
#define LARGEST (1UL << 35)
static const size_t total = 85520809984UL;
static size_t in_use;
static __thread int current;
static __thread result last;
static int is_capturing;
static unsigned long long captures = 1;

static int gpus(void) { const char *text = getenv("STAND_IN_GPUS"); return text ? atoi(text) : 1; }
static double now_ms(void) {
    struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1e3 + t.tv_nsec / 1e6; }
static result made(void **handle) { *handle = calloc(1, 256); return 0; }
static int nothing(void) { return 0; }

result cudaGetDeviceCount(int *count) { *count = gpus(); return 0; }
result cudaGetDevice(int *device) { *device = current; return 0; }
result cudaSetDevice(int device) {
    if (device >= gpus()) return last = cudaErrorInvalidDevice; current = device; return 0; }
result cudaGetLastError(void) { result found = last; last = 0; return found; }
result cudaPeekAtLastError(void) { return last; }
const char *cudaGetErrorString(result e) { return e == cudaErrorMemoryAllocation ? "out of memory" : "stand-in"; }
const char *cudaGetErrorName(result e) {
    return e == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "standIn"; }
result cudaDriverGetVersion(int *version) { *version = 13000; return 0; }
result cudaRuntimeGetVersion(int *version) { *version = 13000; return 0; }
result cudaGetDeviceProperties(struct cudaDeviceProp *p, int device) {
    memset(p, 0, sizeof *p);
    strcpy(p->name, "NVIDIA H100 80GB HBM3");
    memset(p->uuid.bytes, 0x11 * (device + 1), 16);
    p->major = 9; p->warpSize = 32; p->multiProcessorCount = 132; p->totalGlobalMem = total; p->l2CacheSize = 52428800;
    p->pciBusID = 0x18 + device; p->maxThreadsPerBlock = 1024; p->maxThreadsPerMultiProcessor = 2048;
    p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024; p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = 2147483647; p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->sharedMemPerBlock = 49152; p->sharedMemPerBlockOptin = 232448; p->sharedMemPerMultiprocessor = 233472;
    p->regsPerBlock = p->regsPerMultiprocessor = 65536; p->textureAlignment = 512; p->unifiedAddressing = 1;
    return 0; }
result cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    *value = attribute == cudaDevAttrComputeCapabilityMajor ? 9 : attribute == cudaDevAttrComputeCapabilityMinor ? 0 :
             attribute == cudaDevAttrMultiProcessorCount ? 132 : attribute == cudaDevAttrWarpSize ? 32 :
             attribute == cudaDevAttrMaxThreadsPerBlock ? 1024 : attribute == cudaDevAttrMaxGridDimX ? 2147483647 :
             attribute == cudaDevAttrMaxSharedMemoryPerBlockOptin ? 232448 : 1;
    return 0; }
result cudaDeviceGetPCIBusId(char *text, int size, int device) {
    snprintf(text, size, "0000:%02X:00.0", 0x18 + device); return 0; }
result cudaDeviceGetStreamPriorityRange(int *least, int *most) { *least = 0; *most = -5; return 0; }
result cudaDeviceCanAccessPeer(int *can, int a, int b) { *can = 1; return 0; }
result cudaMemGetInfo(size_t *free, size_t *all) { *all = total; *free = total - in_use - 600000000UL; return 0; }
result cudaMalloc(void **pointer, size_t size) {
    if (size > LARGEST || posix_memalign(pointer, 512, size ? size : 1)) return last = cudaErrorMemoryAllocation;
    memset(*pointer, 1, size);
    __sync_fetch_and_add(&in_use, malloc_usable_size(*pointer));
    return 0; }
result cudaFree(void *pointer) {
    if (pointer) __sync_fetch_and_sub(&in_use, malloc_usable_size(pointer));
    free(pointer);
    return 0; }
result cudaHostAlloc(void **pointer, size_t size, unsigned flags) { *pointer = calloc(1, size + 1); return 0; }
result cudaFreeHost(void *pointer) { free(pointer); return 0; }
result cudaMemcpy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind) {
    memmove(to, from, size); return 0; }
result cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind kind, cudaStream_t stream) {
    memmove(to, from, size); return 0; }
result cudaMemcpyPeerAsync(void *to, int a, const void *from, int b, size_t size, cudaStream_t stream) {
    memmove(to, from, size); return 0; }
result cudaMemsetAsync(void *to, int value, size_t size, cudaStream_t stream) { memset(to, value, size); return 0; }
result cudaPointerGetAttributes(struct cudaPointerAttributes *found, const void *pointer) {
    memset(found, 0, sizeof *found); found->type = cudaMemoryTypeUnregistered; return 0; }
result cudaEventCreate(cudaEvent_t *made_event) { return made((void **)made_event); }
result cudaEventCreateWithFlags(cudaEvent_t *made_event, unsigned flags) { return made((void **)made_event); }
result cudaEventDestroy(cudaEvent_t one) { free(one); return 0; }
result cudaEventRecord(cudaEvent_t one, cudaStream_t stream) { ((event *)one)->ms = now_ms(); return 0; }
result cudaEventRecordWithFlags(cudaEvent_t one, cudaStream_t stream, unsigned flags) {
    return cudaEventRecord(one, stream); }
result cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b) {
    *ms = ((event *)b)->ms - ((event *)a)->ms; return 0; }
result cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority) {
    return made((void **)stream); }
result cudaStreamGetPriority(cudaStream_t stream, int *priority) { *priority = 0; return 0; }
result cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t call, void *data) { call(data); return 0; }
result cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    is_capturing = 1; captures++; return 0; }
result cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) { is_capturing = 0; return made((void **)graph); }
result cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
    *status = is_capturing && stream ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone; return 0; }
result cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id,
                                cudaGraph_t *graph, const cudaGraphNode_t **nodes, const cudaGraphEdgeData **edges,
                                size_t *count) {
    cudaStreamIsCapturing(stream, status);
    if (id) *id = captures;
    if (graph) *graph = 0;
    if (count) *count = 0;
    return 0; }
result cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags) {
    return made((void **)exec); }
result cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) { *count = 1; return 0; }
result cudaFuncGetAttributes(struct cudaFuncAttributes *found, const void *function) {
    memset(found, 0, sizeof *found);
    found->maxThreadsPerBlock = 1024; found->numRegs = 32; found->ptxVersion = found->binaryVersion = 90;
    return 0; }
result cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *f, int threads, size_t shared,
                                                              unsigned flags) { *blocks = 2; return 0; }
result cudaGetSymbolAddress(void **pointer, const void *symbol) {
    static char memory[65536]; *pointer = memory; return 0; }
result cudaGetDriverEntryPointByVersion(const char *name, void **found, unsigned version, unsigned long long flags,
                                        enum cudaDriverEntryPointQueryResult *status) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    *found = driver ? dlsym(driver, name) : 0;
    if (!*found) *found = (void *)nothing;
    if (status) *status = cudaDriverEntryPointSuccess;
    return 0; }

/* What the compiler's launches call. */
static __thread struct { dim3 grid, block; size_t shared; void *stream; } launch;
void **__cudaRegisterFatBinary(void *binary) { static void *handle; return &handle; }
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream) {
    launch.grid = grid; launch.block = block; launch.shared = shared; launch.stream = stream; return 0; }
result __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
    *grid = launch.grid; *block = launch.block; *shared = launch.shared; *(void **)stream = launch.stream; return 0; }
result __cudaGetKernel(void **kernel, const void *function) { *kernel = (void *)function; return 0; }

/* cuBLAS: products do nothing, and one algorithm is found for each. */
int cublasCreate_v2(void **handle) { return made(handle); }
int cublasLtMatmulDescCreate(void **made_description) { return made(made_description); }
int cublasLtMatmulPreferenceCreate(void **preference) { return made(preference); }
int cublasLtMatrixLayoutCreate(void **layout) { return made(layout); }
int cublasLtMatmulAlgoGetHeuristic(void *handle, void *d, void *a, void *b, void *c, void *e, void *p, int most,
                                   char *found, int *count) { memset(found, 0, 96); *count = 1; return 0; }
