/* Functions of which only the error matters, whatever they are given: an error that comes late is told to any of them,
 * and some (captures, pools, textures) are where programs fail. All their arguments are integers and pointers, so that
 * as many as any has can be handed on. */
#define PARAMETERS uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g, uint64_t h, \
                   uint64_t i, uint64_t j, uint64_t k, uint64_t l
#define OTHER(name)                                                                    \
    FUNCTION(name, (PARAMETERS), (a, b, c, d, e, f, g, h, i, j, k, l), ,               \
             if (__builtin_expect(status != OK, 0)) failed(#name, status, CALLER, (struct asked){.bytes = 0}))
#define OF_STREAMS(X, name) X(name) X(name##_ptsz)
#define OF_DEFAULT_STREAM(X, name) X(name) X(name##_ptds)

#define OTHER_FUNCTIONS(X)                                                                                        \
    X(cuCtxCreate_v2) X(cuCtxCreate_v3) X(cuCtxCreate_v4) X(cuCtxEnablePeerAccess)                                \
    X(cuMemFree_v2) X(cuMemAllocPitch_v2) X(cuMemHostRegister_v2) X(cuMemMap) X(cuMemSetAccess)                   \
    X(cuMemAddressReserve) X(cuMemPoolCreate) X(cuMemPoolTrimTo) X(cuIpcOpenMemHandle_v2)                         \
    X(cuArrayCreate_v2) X(cuArray3DCreate_v2) X(cuTexObjectCreate) X(cuTensorMapEncodeTiled)                      \
    X(cuMulticastCreate) X(cuMulticastBindMem)                                                                    \
    X(cuStreamCreate) X(cuStreamCreateWithPriority) X(cuEventCreate) X(cuEventElapsedTime)                        \
    X(cuEventElapsedTime_v2) X(cuLinkCreate_v2) X(cuLinkAddFile_v2) X(cuStreamUpdateCaptureDependencies)          \
    OF_STREAMS(X, cuMemFreeAsync) OF_STREAMS(X, cuMemPrefetchAsync) OF_STREAMS(X, cuMemPrefetchAsync_v2)          \
    OF_STREAMS(X, cuMemcpy2DAsync_v2) OF_STREAMS(X, cuMemcpy3DAsync_v2) OF_STREAMS(X, cuMemcpyDtoDAsync_v2)       \
    OF_STREAMS(X, cuMemcpyPeerAsync) OF_STREAMS(X, cuMemsetD8Async) OF_STREAMS(X, cuMemsetD16Async)               \
    OF_STREAMS(X, cuMemsetD32Async) OF_STREAMS(X, cuMemsetD2D8Async) OF_STREAMS(X, cuMemsetD2D32Async)            \
    OF_STREAMS(X, cuStreamWaitEvent) OF_STREAMS(X, cuStreamBeginCapture_v2) OF_STREAMS(X, cuStreamEndCapture)     \
    OF_STREAMS(X, cuLaunchHostFunc) OF_STREAMS(X, cuGraphUpload)                                                  \
    OF_DEFAULT_STREAM(X, cuMemcpy2D_v2) OF_DEFAULT_STREAM(X, cuMemcpy2DUnaligned_v2)                              \
    OF_DEFAULT_STREAM(X, cuMemcpy3D_v2) OF_DEFAULT_STREAM(X, cuMemcpyDtoD_v2) OF_DEFAULT_STREAM(X, cuMemcpyPeer)  \
    OF_DEFAULT_STREAM(X, cuMemsetD8_v2) OF_DEFAULT_STREAM(X, cuMemsetD16_v2) OF_DEFAULT_STREAM(X, cuMemsetD32_v2)
OTHER_FUNCTIONS(OTHER)

/* Asked before CUDA is begun with, they say so, which is no failure. In a child of a process with CUDA it is the one that
 * is told why nothing works. */
#define OF_CHILDREN(name)                                                              \
    FUNCTION(name, (PARAMETERS), (a, b, c, d, e, f, g, h, i, j, k, l), ,               \
             if (__builtin_expect(status != OK && forked, 0)) failed(#name, status, CALLER, (struct asked){.bytes = 0}))
#define CHILD_FUNCTIONS(X) X(cuDeviceGet) X(cuDeviceGetCount) X(cuCtxGetCurrent) X(cuCtxSetCurrent)
CHILD_FUNCTIONS(OF_CHILDREN)
