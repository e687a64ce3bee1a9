#include "triage.h"

#include <string.h>

typedef struct role {
    const char *stem; /* the class's name without "Backward" and what follows it */
    uint32_t is;
} role;

static const role roles[] = {
    /* views and copies */
    {"T", TGD_ROLE_VIEW}, {"Transpose", TGD_ROLE_VIEW}, {"Permute", TGD_ROLE_VIEW}, {"View", TGD_ROLE_VIEW},
    {"UnsafeView", TGD_ROLE_VIEW}, {"ReshapeAlias", TGD_ROLE_VIEW}, {"Alias", TGD_ROLE_VIEW},
    {"Unsqueeze", TGD_ROLE_VIEW}, {"Squeeze", TGD_ROLE_VIEW}, {"ToCopy", TGD_ROLE_VIEW}, {"Clone", TGD_ROLE_VIEW},
    {"Contiguous", TGD_ROLE_VIEW}, {"Flip", TGD_ROLE_VIEW}, {"Movedim", TGD_ROLE_VIEW}, {"Roll", TGD_ROLE_VIEW},
    {"Identity", TGD_ROLE_VIEW},
    /* products */
    {"Addmm", TGD_ROLE_LINEAR}, {"Mm", TGD_ROLE_LINEAR}, {"Bmm", TGD_ROLE_LINEAR}, {"Baddbmm", TGD_ROLE_LINEAR},
    {"Mv", TGD_ROLE_LINEAR}, {"Addmv", TGD_ROLE_LINEAR}, {"Linear", TGD_ROLE_LINEAR}, {"Convolution", TGD_ROLE_LINEAR},
    {"ConvolutionOverrideable", TGD_ROLE_LINEAR}, {"MkldnnConvolution", TGD_ROLE_LINEAR},
    {"CudnnConvolution", TGD_ROLE_LINEAR}, {"SlowConv2D", TGD_ROLE_LINEAR}, {"Matmul", TGD_ROLE_LINEAR},
    {"MkldnnRnnLayer", TGD_ROLE_LINEAR}, {"CudnnRnn", TGD_ROLE_LINEAR},
    /* other numbers of elements, or a loss */
    {"Sum", TGD_ROLE_SPREAD | TGD_ROLE_PLAIN}, {"Mean", TGD_ROLE_SPREAD | TGD_ROLE_PLAIN}, {"Expand", TGD_ROLE_SPREAD},
    {"Repeat", TGD_ROLE_SPREAD}, {"Select", TGD_ROLE_SPREAD}, {"Slice", TGD_ROLE_SPREAD}, {"Index", TGD_ROLE_SPREAD},
    {"IndexSelect", TGD_ROLE_SPREAD}, {"Gather", TGD_ROLE_SPREAD}, {"Scatter", TGD_ROLE_SPREAD},
    {"Embedding", TGD_ROLE_SPREAD}, {"EmbeddingBag", TGD_ROLE_SPREAD}, {"Cat", TGD_ROLE_SPREAD},
    {"Stack", TGD_ROLE_SPREAD}, {"Unbind", TGD_ROLE_SPREAD}, {"Split", TGD_ROLE_SPREAD}, {"Chunk", TGD_ROLE_SPREAD},
    {"SplitWithSizes", TGD_ROLE_SPREAD}, {"ConstantPadNd", TGD_ROLE_SPREAD}, {"Unfold", TGD_ROLE_SPREAD},
    {"AsStrided", TGD_ROLE_SPREAD}, {"Diagonal", TGD_ROLE_SPREAD}, {"Tril", TGD_ROLE_SPREAD},
    {"AvgPool1D", TGD_ROLE_SPREAD}, {"AvgPool2D", TGD_ROLE_SPREAD}, {"AvgPool3D", TGD_ROLE_SPREAD},
    {"AdaptiveAvgPool2D", TGD_ROLE_SPREAD}, {"MaxPool2DWithIndices", TGD_ROLE_SPREAD},
    {"MaxPool3DWithIndices", TGD_ROLE_SPREAD}, {"AdaptiveMaxPool2D", TGD_ROLE_SPREAD}, {"Max", TGD_ROLE_SPREAD},
    {"Min", TGD_ROLE_SPREAD}, {"Amax", TGD_ROLE_SPREAD}, {"Amin", TGD_ROLE_SPREAD}, {"Cumsum", TGD_ROLE_SPREAD},
    {"UpsampleNearest2D", TGD_ROLE_SPREAD}, {"UpsampleBilinear2D", TGD_ROLE_SPREAD},
    {"Softmax", TGD_ROLE_SPREAD | TGD_ROLE_SQUASH},
    {"LogSoftmax", TGD_ROLE_SPREAD}, {"Logsumexp", TGD_ROLE_SPREAD}, {"NllLoss", TGD_ROLE_SPREAD},
    {"NllLoss2D", TGD_ROLE_SPREAD}, {"NllLossNd", TGD_ROLE_SPREAD}, {"MseLoss", TGD_ROLE_SPREAD},
    {"L1Loss", TGD_ROLE_SPREAD}, {"SmoothL1Loss", TGD_ROLE_SPREAD}, {"HuberLoss", TGD_ROLE_SPREAD},
    {"BinaryCrossEntropy", TGD_ROLE_SPREAD}, {"BinaryCrossEntropyWithLogits", TGD_ROLE_SPREAD},
    {"KlDiv", TGD_ROLE_SPREAD}, {"ScaledDotProductFlashAttentionForCpu", TGD_ROLE_SPREAD | TGD_ROLE_ATTENTION},
    {"ScaledDotProductEfficientAttention", TGD_ROLE_SPREAD | TGD_ROLE_ATTENTION},
    {"ScaledDotProductFlashAttention", TGD_ROLE_SPREAD | TGD_ROLE_ATTENTION},
    {"Norm", TGD_ROLE_SPREAD}, {"LinalgVectorNorm", TGD_ROLE_SPREAD}, {"Var", TGD_ROLE_SPREAD},
    {"Std", TGD_ROLE_SPREAD}, {"CopySlices", TGD_ROLE_SPREAD},
    /* zero by what the values are */
    {"Relu", TGD_ROLE_SELECT}, {"Threshold", TGD_ROLE_SELECT}, {"Hardtanh", TGD_ROLE_SELECT},
    {"Clamp", TGD_ROLE_SELECT}, {"ClampMin", TGD_ROLE_SELECT}, {"ClampMax", TGD_ROLE_SELECT},
    {"Sign", TGD_ROLE_SELECT}, {"Sgn", TGD_ROLE_SELECT}, {"Round", TGD_ROLE_SELECT}, {"Floor", TGD_ROLE_SELECT},
    {"Ceil", TGD_ROLE_SELECT}, {"Trunc", TGD_ROLE_SELECT}, {"Where", TGD_ROLE_SELECT},
    {"MaskedFill", TGD_ROLE_SELECT}, {"Hardsigmoid", TGD_ROLE_SELECT}, {"Hardswish", TGD_ROLE_SELECT},
    {"Hardshrink", TGD_ROLE_SELECT}, {"Softshrink", TGD_ROLE_SELECT}, {"Maximum", TGD_ROLE_SELECT},
    {"Minimum", TGD_ROLE_SELECT}, {"Heaviside", TGD_ROLE_SELECT}, {"FloorDivide", TGD_ROLE_SELECT},
    {"Fmod", TGD_ROLE_SELECT}, {"MaskedScatter", TGD_ROLE_SELECT}, {"NanToNum", TGD_ROLE_SELECT},
    {"Gelu", TGD_ROLE_SELECT}, {"Silu", TGD_ROLE_SELECT}, {"Elu", TGD_ROLE_SELECT}, {"Prelu", TGD_ROLE_SELECT},
    {"Softplus", TGD_ROLE_SELECT}, {"Div", 0}, {"Exp", 0},
    {"Sigmoid", TGD_ROLE_SQUASH}, {"Tanh", TGD_ROLE_SQUASH}, {"LogSigmoid", TGD_ROLE_SQUASH},
    {"Add", TGD_ROLE_PLAIN}, {"Sub", TGD_ROLE_PLAIN}, {"Rsub", TGD_ROLE_PLAIN}, {"Neg", TGD_ROLE_PLAIN},
    {"Mul", TGD_ROLE_PLAIN},
};

const char *tgd_node_class(const tgd_report *report, tgd_node v)
{
    const tgd_node_row *node = &report->graph.nodes[v];
    return report->graph.types[node->inner_type != TGD_NONE ? node->inner_type : node->type].name;
}

uint32_t tgd_node_role(const tgd_report *report, tgd_node v)
{
    const char *name = tgd_graph_type(&report->graph, v)->name;
    const char *end = strstr(name, "Backward");
    const size_t n = end == NULL ? strlen(name) : (size_t)(end - name);
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        if (strncmp(roles[i].stem, name, n) == 0 && roles[i].stem[n] == '\0') {
            return roles[i].is;
        }
    }
    return 0;
}
