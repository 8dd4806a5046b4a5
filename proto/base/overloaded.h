// One visitor out of lambdas, for std::visit (cppreference, std::visit, example).
#pragma once

namespace tusk {

template <class... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};
template <class... Handlers>
Overloaded(Handlers...) -> Overloaded<Handlers...>;  // GCC deduces it, clang 16 does not

}  // namespace tusk
