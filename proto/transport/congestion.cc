#include "proto/transport/congestion.h"

#include "proto/transport/background_controller.h"
#include "proto/transport/bbr_controller.h"
#include "proto/transport/cubic_controller.h"
#include "proto/transport/model_controller.h"

namespace tusk::transport {

std::unique_ptr<CongestionController> make_congestion_controller(CongestionKind kind, std::uint64_t seed) {
  switch (kind) {
    case CongestionKind::kModel:
      return std::make_unique<ModelController>();
    case CongestionKind::kBackground:
      return std::make_unique<BackgroundController>();
    case CongestionKind::kCubic:
      return std::make_unique<CubicController>();
    case CongestionKind::kBbr:
      return std::make_unique<BbrController>(seed);
  }
  return nullptr;
}

}  // namespace tusk::transport
