#include "fsclient/remote.h"

#include <memory>
#include <utility>

namespace tusk::client {
namespace {

Result<rpc::CallReply> checked(Result<rpc::CallReply> reply, Remote::Kind expected) {
  if (reply && reply->message.result_case() != expected)
    return fail(ErrorCode::kMalformed, "the server's answer is of another kind than the question");
  return reply;
}

// A server that does not tell its verifier tells its boot id.
std::uint64_t verifier_of_boot_id(const std::string& boot_id) {
  return std::hash<std::string>()(boot_id) | 1;
}

std::uint64_t verifier_of_attach(const schema::AttachReply& attached) {
  return attached.write_verifier() != 0 ? attached.write_verifier() : verifier_of_boot_id(attached.boot_id());
}

}  // namespace

Remote::Remote(rpc::Caller& caller, Scheduler& scheduler, const PathEstimate& path,
               const schema::AttachReply& attached)
    : caller_(caller),
      scheduler_(scheduler),
      path_(path),
      identity_real_(attached.identity_real()),
      verifier_(verifier_of_attach(attached)) {}

void Remote::ask(const Asker& asker, schema::Request request, Kind expected, Answer done) {
  rpc::CallRequest call;
  call.message = std::move(request);
  send(asker, std::move(call), expected, GiveUp::kAfterGrace, std::move(done));
}

void Remote::wait_for(const Asker& asker, schema::Request request, Kind expected, Answer done) {
  rpc::CallRequest call;
  call.message = std::move(request);
  send(asker, std::move(call), expected, GiveUp::kAtOnce, std::move(done));
}

void Remote::insist(const Asker& asker, schema::Request request, Kind expected, Answer done) {
  struct Once {
    explicit Once(Answer answer) : done(std::move(answer)) {}
    void give(Result<rpc::CallReply> result) {
      Answer taken;
      {
        const std::lock_guard lock(mutex);
        taken = std::exchange(done, nullptr);
      }
      if (taken) taken(std::move(result));
    }
    std::mutex mutex;
    Answer done;
  };
  const auto once = std::make_shared<Once>(std::move(done));
  Asker unstoppable = asker;
  unstoppable.interrupt = nullptr;
  wait_for(unstoppable, std::move(request), expected,
           [once](Result<rpc::CallReply> reply) { once->give(std::move(reply)); });
  if (!asker.interrupt) return;
  asker.interrupt->on_fire([this, once] {
    scheduler_.post_after(path_.interrupt_grace(),
                          [once] { once->give(fail(ErrorCode::kCancelled, "interrupted")); });
  });
}

void Remote::mutate(const Asker& asker, schema::Request request, Kind expected, Answer done) {
  rpc::CallRequest call;
  call.message = std::move(request);
  mutate_with_body(asker, std::move(call), expected, std::move(done));
}

void Remote::mutate_with_body(const Asker& asker, rpc::CallRequest call, Kind expected, Answer done) {
  const std::uint64_t sequence = begin_mutation();
  identify(asker, call.message);
  const bool synchronous = call.message.has_write() && call.message.write().sync();
  auto kept = changes_ == nullptr || call.message.has_commit()
                  ? nullptr
                  : std::make_unique<schema::Request>(call.message);
  SharedBytes body = kept ? call.body : SharedBytes{};
  call.message.set_sequence(sequence);
  call.message.set_sequence_done(answered_below());
  send(asker, std::move(call), expected, GiveUp::kAfterGrace,
       [this, sequence, synchronous, kept = std::move(kept), body = std::move(body),
        done = std::move(done)](Result<rpc::CallReply> reply) mutable {
         end_mutation(sequence);
         if (!reply || !kept) return done(std::move(reply));
         // It is on the disk, but older changes of the file would be made again over it.
         if (synchronous && !changes_->has_any(kept->write().handle())) return done(std::move(reply));
         keep(std::move(*kept), reply->message, std::move(body));
         if (has_room()) return done(std::move(reply));
         room_.when_there(
             [reply = std::move(reply), done = std::move(done)]() mutable { done(std::move(reply)); });
       });
}

rpc::CallId Remote::transfer(rpc::CallRequest call, Kind expected, Answer done) {
  return caller_.call(std::move(call),
                      [expected, done = std::move(done)](Result<rpc::CallReply> reply) mutable {
                        done(checked(std::move(reply), expected));
                      });
}

void Remote::send(const Asker& asker, rpc::CallRequest call, Kind expected, GiveUp give_up, Answer done) {
  identify(asker, call.message);
  const rpc::CallId id = transfer(std::move(call), expected, std::move(done));
  if (!asker.interrupt) return;
  asker.interrupt->on_fire([this, id, give_up] {
    const Duration grace = give_up == GiveUp::kAtOnce ? Duration::zero() : path_.interrupt_grace();
    if (grace == Duration::zero()) return caller_.cancel(id);
    scheduler_.post_after(grace, [this, id] { caller_.cancel(id); });
  });
}

void Remote::identify(const Asker& asker, schema::Request& request) const {
  if (!identity_real_) return;
  // The client kernel checks permissions (default_permissions); the server needs to know whose new
  // files are. Supplementary groups decide neither.
  request.mutable_caller()->set_uid(asker.uid);
  request.mutable_caller()->set_gid(asker.gid);
}

std::uint64_t Remote::begin_mutation() {
  const std::lock_guard lock(mutex_);
  unanswered_.insert(unanswered_.end(), next_sequence_);
  return next_sequence_++;
}

void Remote::end_mutation(std::uint64_t sequence) {
  const std::lock_guard lock(mutex_);
  unanswered_.erase(sequence);
}

std::uint64_t Remote::answered_below() const {
  const std::lock_guard lock(mutex_);
  return unanswered_.empty() ? next_sequence_ : *unanswered_.begin();
}

void Remote::handle_attached(const schema::AttachReply& attached) {
  verifier_ = verifier_of_attach(attached);
}

std::uint64_t Remote::verifier_of(const schema::Reply& reply) const {
  if (reply.write_verifier() != 0) return reply.write_verifier();
  return reply.has_commit() ? verifier_of_boot_id(reply.commit().boot_id()) : verifier();
}

void Remote::keep(schema::Request request, const schema::Reply& reply, SharedBytes body) {
  if (changes_ == nullptr) return;
  std::optional<UncommittedChange> change = repeatable(std::move(request), reply, std::move(body));
  if (!change) return;
  change->verifier = verifier_of(reply);
  changes_->add(std::move(*change), verifier());
}

}  // namespace tusk::client
