#include "proto/base/text.h"

namespace tusk {
namespace {

constexpr bool continues(unsigned char c) { return (c & 0xc0) == 0x80; }

// How many bytes the UTF-8 character (RFC 3629) at the beginning of `text` has; 0: there is none.
std::size_t character_size(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t size = first >= 0xf5 ? 0 : first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc2 ? 2 : 0;
  if (size == 0 || text.size() < size) return 0;
  for (std::size_t i = 1; i < size; ++i)
    if (!continues(byte(i))) return 0;
  const bool overlong = (first == 0xe0 && byte(1) < 0xa0) || (first == 0xf0 && byte(1) < 0x90);
  const bool beyond = (first == 0xed && byte(1) >= 0xa0) || (first == 0xf4 && byte(1) >= 0x90);
  return overlong || beyond ? 0 : size;
}

// Of `character`, which is well-formed.
bool is_control(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) return first < 0x20 || first == 0x7f;
  return first == 0xc2 && static_cast<unsigned char>(character[1]) < 0xa0;
}

}  // namespace

std::string printable(std::string_view text, std::size_t size_max) {
  text = text.substr(0, size_max);
  std::string clean;
  clean.reserve(text.size());
  while (!text.empty()) {
    const std::size_t size = character_size(text);
    if (size == 0 || is_control(text.substr(0, size)))
      clean += '?';
    else
      clean += text.substr(0, size);
    text.remove_prefix(size == 0 ? 1 : size);
  }
  return clean;
}

bool has_control_characters(std::string_view text) {
  while (!text.empty()) {
    const std::size_t size = character_size(text);
    if (size != 0 && is_control(text.substr(0, size))) return true;
    text.remove_prefix(size == 0 ? 1 : size);
  }
  return false;
}

std::string shell_word(std::string_view text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/:@%+,=";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string_view::npos) return std::string(text);
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

}  // namespace tusk
