// What a mount says of its connection when that is not well.
#include "fsclient/status.h"

#include "client.h"

namespace tusk::client {
namespace {

class ConnectionStatus : public Client {
 protected:
  [[nodiscard]] std::string json() {
    return status_json({.server = "tusk://h/x"}, stats, *filesystem, scheduler.now());
  }
  [[nodiscard]] std::string text() { return status_text(json()).value_or(""); }

  rpc::ChannelStats stats;
};

TEST_F(ConnectionStatus, SaysWhyItIsDown) {
  stats.down_because = "no answer";
  EXPECT_THAT(json(), testing::HasSubstr("\"down_because\":\"no answer\""));
  EXPECT_THAT(json(), testing::HasSubstr("\"refused\":false"));
  EXPECT_THAT(text(), testing::HasSubstr("DOWN: no answer\n"));
  stats.silent = 7s;
  EXPECT_THAT(text(), testing::HasSubstr("DOWN for 7 s: no answer\n"));
}

TEST_F(ConnectionStatus, ShowsThatNothingIsHeardLongBeforeItIsDown) {
  stats.connected = true;
  stats.peer_address = "10.0.0.1:8875";
  stats.silent = 500ms;
  EXPECT_THAT(text(), testing::HasSubstr("up, 10.0.0.1:8875\n"));
  stats.silent = 2900ms;
  EXPECT_THAT(text(), testing::HasSubstr("WAITING: no answer for 2 s from 10.0.0.1:8875\n"));
  EXPECT_THAT(text(), testing::Not(testing::HasSubstr("up, ")));
  EXPECT_THAT(json(), testing::HasSubstr("\"silent_s\":2.9"));
  stats.rtt_smoothed = 1s;
  EXPECT_THAT(text(), testing::HasSubstr("up, 10.0.0.1:8875\n"));
}

TEST_F(ConnectionStatus, OfAnOlderDaemonIsToldBySeconds) {
  stats.connected = true;
  stats.silent = 2900ms;
  std::string older = json();
  const std::string key = ",\"silent\":true";
  ASSERT_NE(older.find(key), std::string::npos);
  older.erase(older.find(key), key.size());
  EXPECT_THAT(status_text(older).value_or(""), testing::HasSubstr("WAITING: no answer for 2 s"));
}

TEST_F(ConnectionStatus, TellsTheKeyThatCanBeAllowed) {
  const std::string key = stats.own_key.to_text();
  EXPECT_THAT(json(), testing::HasSubstr("\"client_key\":\"" + key + "\""));
  EXPECT_THAT(text(), testing::HasSubstr(key));
  stats.refused = true;
  EXPECT_THAT(text(), testing::HasSubstr("tuskd allow --export x -- " + key));
}

TEST_F(ConnectionStatus, ShowsThePriority) {
  EXPECT_THAT(json(), testing::HasSubstr("\"priority\":\"normal\""));
  EXPECT_THAT(text(), testing::Not(testing::HasSubstr("background")));
  const std::string yielding =
      status_json({.server = "tusk://h/x", .background = true}, stats, *filesystem, scheduler.now());
  EXPECT_THAT(yielding, testing::HasSubstr("\"priority\":\"background\""));
  EXPECT_THAT(status_text(yielding).value_or(""), testing::HasSubstr("background: yields"));
}

TEST_F(ConnectionStatus, SaysHowManyConnectionsThereAre) {
  EXPECT_THAT(json(), testing::HasSubstr("\"connections\":1"));
  EXPECT_THAT(text(), testing::Not(testing::HasSubstr("connections")));
  stats.connections = 3;
  EXPECT_THAT(json(), testing::HasSubstr("\"connections\":3"));
  EXPECT_THAT(text(), testing::HasSubstr("  connections     3, which"));
}

TEST_F(ConnectionStatus, SaysWhatToDoWhenTheServerRefuses) {
  stats.refused = true;
  stats.down_because = "no right";
  EXPECT_THAT(json(), testing::HasSubstr("\"refused\":true"));
  EXPECT_THAT(text(), testing::HasSubstr("refused: no right"));
  EXPECT_THAT(text(), testing::HasSubstr("mount again with a new URL"));
  EXPECT_THAT(json(), testing::HasSubstr("\"key_changed\":false"));
}

TEST_F(ConnectionStatus, SaysWhatToDoWhenTheServerHasAnotherKey) {
  stats.refused = stats.key_changed = true;
  stats.down_because = "expected the server key A, the server has B";
  EXPECT_THAT(json(), testing::HasSubstr("\"key_changed\":true"));
  EXPECT_THAT(text(), testing::HasSubstr("ANOTHER SERVER KEY: expected the server key A, the server has B"));
  EXPECT_THAT(text(), testing::HasSubstr("tusk umount, then mount with a new URL"));
  EXPECT_THAT(text(), testing::Not(testing::HasSubstr("tuskd allow")));
}

}  // namespace
}  // namespace tusk::client
