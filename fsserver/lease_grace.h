// The sessions that have leases, on the disk: after an unclean end the next server process lets nobody change
// what one of them may still trust, before it is back or its lease is over (docs/PROTOCOL.md, "Grace").
//
// A session is entered before it is told anything under a lease and removed once it trusts nothing. Nothing
// is synced: the page cache outlives this process. A power cut may lose entries; but leases of before are
// over once the machine has been up for longer than one, and until then everybody is waited for.
//
// Servers may share the folder. Each has a folder of its own inside, locked (flock) while it runs: nobody
// else awaits its sessions or removes them. When it has died, all servers that start await them, since nobody
// knows which of them has its files; what they trust is over before one of those servers removes its entry.
//
// What cannot be stored is logged and left: nobody waits for that session after a crash.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "fsserver/fd.h"
#include "fsserver/lease_keeper.h"

namespace tusk::server {

// Thread-safe.
class LeaseGrace {
 public:
  // `folder` is made when it is first needed. The keeper must outlive it.
  LeaseGrace(std::filesystem::path folder, LeaseKeeper& leases);

  // All sessions that were entered are awaited from now on, under numbers from `new_number`. Nobody knows
  // which of the exports has the files of one that is not among them: all changes wait for its sessions.
  void begin(const std::map<std::string, std::shared_ptr<Export>>& exports,
             const std::function<SessionNumber()>& new_number);
  // How long changes on this export may still have to wait; zero: they do not.
  [[nodiscard]] Duration remaining(const Export& exported, TimePoint now) const;
  // Some session is awaited on some export.
  [[nodiscard]] bool waits() const;

  // The session is back, or here for the first time. `leases`: from now on it may trust something.
  void attached(const std::string& session, const Export& exported, bool leases);
  // Rises with each attach of the session.
  [[nodiscard]] std::uint64_t attaches(const std::string& session) const;
  // It trusts nothing any more, unless it has attached again since attaches() said `as_of`.
  void over(const std::string& session, std::uint64_t as_of);
  void over(const std::string& session) { over(session, attaches(session)); }
  // Ends the grace in time.
  void housekeep(TimePoint now);

 private:
  struct Entry {
    std::uint64_t attaches = 0;
    bool stored = false;                           // in our own folder
    std::vector<std::filesystem::path> of_before;  // notes of servers that have died
  };
  void begin_own_folder();
  // The notes of servers that have died.
  [[nodiscard]] std::vector<std::filesystem::path> notes_left() const;
  [[nodiscard]] Duration time() const { return leases_.limits().lease + leases_.limits().slack; }
  // With mutex_ held. nullptr: on any export.
  void await(const std::string& session, const Export* exported, SessionNumber number);
  // Of a boot of the machine before this one, which may have told leases that are not over yet.
  [[nodiscard]] bool another_boot_just_before() const;

  const std::filesystem::path folder_;
  std::filesystem::path own_;  // constant after construction
  Fd held_;                    // own_, locked
  const TimePoint ends_;
  LeaseKeeper& leases_;
  bool anybody_awaited_ = false;  // constant after construction
  std::mutex disk_mutex_;         // whoever holds it waits for a disk; before mutex_
  mutable std::mutex mutex_;      // before the keeper's
  std::uint64_t attaches_ = 0;    // of all sessions
  std::map<std::string, Entry> entries_;
  std::map<std::string, SessionNumber> awaited_;
};

}  // namespace tusk::server
