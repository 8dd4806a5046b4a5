#include "proto/rpc/mount_url.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tusk::rpc {
namespace {

using testing::HasSubstr;

crypto::Fingerprint fingerprint_of(int first) {
  crypto::Fingerprint fingerprint;
  for (std::size_t i = 0; i < fingerprint.bytes.size(); ++i)
    fingerprint.bytes[i] = static_cast<std::byte>(first + static_cast<int>(i));
  return fingerprint;
}

MountUrl full_url() {
  return {.host = "files.example.org",
          .port = 8875,
          .export_name = "data",
          .fingerprint = fingerprint_of(1),
          .token = std::vector<std::byte>(kTokenBytes, std::byte{0xfe})};
}

std::string error_of(std::string_view text) {
  const auto url = MountUrl::parse(text);
  EXPECT_FALSE(url.has_value()) << text;
  if (url) return "";
  EXPECT_EQ(url.error().code, ErrorCode::kBadConfig);
  return url.error().context;
}

TEST(MountUrl, ReadsBackWhatItWrites) {
  const std::string text = full_url().to_text();
  EXPECT_EQ(text.size(), std::string("tusk://files.example.org:8875/data#").size() + 64);
  const auto url = MountUrl::parse(text);
  ASSERT_TRUE(url.has_value()) << url.error().message();
  EXPECT_EQ(*url, full_url());
}

TEST(MountUrl, HasADefaultPortAndNeedsNoRight) {
  const auto url = MountUrl::parse("tusk://host/data");
  ASSERT_TRUE(url.has_value());
  EXPECT_EQ(url->port, kDefaultPort);
  EXPECT_EQ(url->host, "host");
  EXPECT_EQ(url->export_name, "data");
  EXPECT_FALSE(url->fingerprint.has_value());
  EXPECT_TRUE(url->token.empty());
}

TEST(MountUrl, CarriesAFingerprintWithoutAToken) {
  MountUrl url = full_url();
  url.token.clear();
  EXPECT_EQ(MountUrl::parse(url.to_text()).value(), url);
}

TEST(MountUrl, CarriesATokenWithoutAFingerprint) {
  MountUrl url = full_url();
  url.fingerprint.reset();
  EXPECT_EQ(MountUrl::parse(url.to_text()).value(), url);
}

TEST(MountUrl, PutsIpv6InBrackets) {
  MountUrl url = full_url();
  url.host = "2001:db8::1";
  EXPECT_THAT(url.to_text(), HasSubstr("tusk://[2001:db8::1]:8875/data#"));
  EXPECT_EQ(MountUrl::parse(url.to_text()).value(), url);
  EXPECT_EQ(MountUrl::parse("tusk://[::1]/d").value().host, "::1");
}

TEST(MountUrl, EncodesAnyByteOfAName) {
  MountUrl url = full_url();
  url.export_name = "a b%#?\xff\xc3\xa4[]";
  EXPECT_THAT(url.to_text(), HasSubstr("/a%20b%25%23%3F%FF%C3%A4%5B%5D#"));
  EXPECT_EQ(MountUrl::parse(url.to_text()).value(), url);
}

TEST(MountUrl, SaysWhatIsWrong) {
  EXPECT_THAT(error_of(""), HasSubstr("tusk://"));
  EXPECT_THAT(error_of("http://host/data"), HasSubstr("does not begin with tusk://"));
  EXPECT_THAT(error_of("tusk://"), HasSubstr("host is missing"));
  EXPECT_THAT(error_of("tusk:///data"), HasSubstr("host is missing"));
  EXPECT_THAT(error_of("tusk://host"), HasSubstr("export's name is missing"));
  EXPECT_THAT(error_of("tusk://host/"), HasSubstr("export's name is missing"));
  EXPECT_THAT(error_of("tusk://host:/d"), HasSubstr("port ''"));
  EXPECT_THAT(error_of("tusk://host:0/d"), HasSubstr("port '0'"));
  EXPECT_THAT(error_of("tusk://host:65536/d"), HasSubstr("port '65536'"));
  EXPECT_THAT(error_of("tusk://host:12x/d"), HasSubstr("port '12x'"));
  EXPECT_THAT(error_of("tusk://2001:db8::1/d"), HasSubstr("needs brackets"));
  EXPECT_THAT(error_of("tusk://[::1/d"), HasSubstr("without ']'"));
  EXPECT_THAT(error_of("tusk://[::1]8875/d"), HasSubstr("may follow ']'"));
  EXPECT_THAT(error_of("tusk://[host]/d"), HasSubstr("no IPv6 address"));
  EXPECT_THAT(error_of("tusk://user@host/d"), HasSubstr("host name"));
  EXPECT_THAT(error_of("tusk://host/a/b"), HasSubstr("no '/'"));
  EXPECT_THAT(error_of("tusk://host/a/"), HasSubstr("no '/'"));
  EXPECT_THAT(error_of("tusk://host/a%2Fb"), HasSubstr("no '/'"));
  for (const char* name : {"a%00b", "x%2Csuid%2Cdev", "x,suid", "a%0Ab", "%1b[2J", "a%7F", "a%C2%9B"})
    EXPECT_THAT(error_of(std::string("tusk://host/") + name), HasSubstr("no control characters")) << name;
  for (const char* name : {".", "..", "%2E%2e"})
    EXPECT_THAT(error_of(std::string("tusk://host/") + name), HasSubstr("no directory's")) << name;
  for (const char* host : {"a,suid", "a\x1b[2J", "a\nb", "a\xc2\x9b"})
    EXPECT_THAT(error_of(std::string("tusk://") + host + "/d"), HasSubstr("host name")) << host;
  EXPECT_THAT(error_of("tusk://host/a%4"), HasSubstr("two hexadecimal digits"));
  EXPECT_THAT(error_of("tusk://host/a%zz"), HasSubstr("two hexadecimal digits"));
  EXPECT_THAT(error_of("tusk://host/a%-1"), HasSubstr("two hexadecimal digits"));
  EXPECT_THAT(error_of("tusk://host/" + std::string(256, 'x')), HasSubstr("at most 255 bytes"));
  EXPECT_THAT(error_of("tusk://host/" + std::string(3000, 'x')), HasSubstr("longer than 2048"));
  EXPECT_THAT(error_of("tusk://host/d#***"), HasSubstr("damaged"));
}

TEST(MountUrl, NoticesARightCutShortWithoutRepeatingIt) {
  std::string text = full_url().to_text();
  text.resize(text.size() - 4);
  const std::string error = error_of(text);
  EXPECT_THAT(error, HasSubstr("instead of 64"));
  EXPECT_THAT(error, testing::Not(HasSubstr(text.substr(text.find('#') + 1))));
}

}  // namespace
}  // namespace tusk::rpc
