// The commands `tusk warm`, `tusk pin` and `tusk unpin`: bring files to the disk cache of their mount, keep
// them there, or let them go. Whatever is below a path is read through the mount like by any program; the
// daemon stores what passes.
#pragma once

#include <string>
#include <vector>

namespace tusk::client {

// Each returns the exit code, and tells how far it is on stderr. They can be interrupted, and go on where
// they were when they are called again.
[[nodiscard]] int warm_paths(const std::vector<std::string>& paths);
[[nodiscard]] int pin_paths(const std::vector<std::string>& paths);
// Reads nothing.
[[nodiscard]] int unpin_paths(const std::vector<std::string>& paths);

}  // namespace tusk::client
