/*
 * torchgraphdbg in a C++ libtorch program without Python: build a small net, break it in place, ask what backward
 * would meet, save the picture, then let the real backward say the same.
 *
 *     embed [FOLDER]      writes embed.svg and embed.json there (default: the working folder)
 *
 * Exits with 0 when the prediction came true.
 */
#include <ATen/ATen.h>
#include <torchgraphdbg/tgd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace {

struct Linear {
    at::Tensor weight, bias;

    Linear(int64_t in, int64_t out) : weight(at::randn({out, in}) * 0.1), bias(at::zeros({out}))
    {
        weight.requires_grad_(true);
        bias.requires_grad_(true);
    }

    at::Tensor operator()(const at::Tensor &x) const
    {
        return at::linear(x, weight, bias);
    }
};

struct ReportDeleter {
    void operator()(tgd_report *report) const
    {
        tgd_report_free(report);
    }
};
using Report = std::unique_ptr<tgd_report, ReportDeleter>;

const tgd_torch_tensor *borrow(const at::Tensor &tensor)
{
    return reinterpret_cast<const tgd_torch_tensor *>(tensor.unsafeGetTensorImpl());
}

int print_piece(void *stream, const char *bytes, size_t n)
{
    return std::fwrite(bytes, 1, n, static_cast<std::FILE *>(stream)) == n ? 0 : 5 /* EIO */;
}

int fail(const tgd_error &error)
{
    std::fprintf(stderr, "torchgraphdbg: %s\n", error.message);
    return 1;
}

} // namespace

int main(int argc, char **argv)
{
    const std::string folder = argc > 1 ? argv[1] : ".";
    at::manual_seed(0);
    const Linear first(8, 16), second(16, 1);

    at::Tensor hidden = first(at::randn({4, 8}));
    at::Tensor gate = at::sigmoid(hidden);
    at::Tensor loss = second(gate * hidden).mean();
    gate.mul_(2); /* the fault: sigmoid and the product both saved gate for backward */

    const std::vector<tgd_parameter> parameters = {
        {"first.weight", borrow(first.weight)},
        {"first.bias", borrow(first.bias)},
        {"second.weight", borrow(second.weight)},
        {"second.bias", borrow(second.bias)},
    };
    const tgd_root root = {borrow(loss), nullptr, 0};
    tgd_request request = {};
    request.roots = &root;
    request.n_roots = 1;
    request.parameters = parameters.data();
    request.n_parameters = parameters.size();

    tgd_error error;
    tgd_report *captured = nullptr;
    if (tgd_report_capture(&captured, &request, &error) != TGD_OK) {
        return fail(error);
    }
    const Report report(captured);

    if (tgd_report_write(report.get(), TGD_FORMAT_TEXT, print_piece, stdout, &error) != TGD_OK) {
        return fail(error);
    }
    const std::string svg = folder + "/embed.svg", json = folder + "/embed.json";
    if (tgd_report_save(report.get(), svg.c_str(), TGD_FORMAT_SVG, &error) != TGD_OK ||
        tgd_report_save(report.get(), json.c_str(), TGD_FORMAT_JSON, &error) != TGD_OK) {
        return fail(error);
    }

    std::string raised;
    try {
        loss.backward();
    } catch (const c10::Error &e) {
        raised = e.what_without_backtrace();
    }
    std::printf("\nverdict: %s\n", tgd_report_verdict(report.get()));
    std::printf("built for: torch %s\n", tgd_built_for());
    std::printf("backward: %s\n", raised.empty() ? "passed" : raised.c_str());
    return tgd_report_ok(report.get()) || raised.empty() ? 1 : 0;
}
