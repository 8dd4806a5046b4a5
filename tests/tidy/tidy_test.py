#!/usr/bin/env python3
"""Keeps the walls: who may include whom, what the pure core may not name, how long things may get,
and that the constants of congestion control are explained.

    tidy_test.py [ROOT]       checks the sources under ROOT; prints every breach; exits 1 if there is one
    tidy_test.py --canaries   proves on a copy with one fault each that every rule bites

What it does not do: judge format (clang-format does; `./dev lint` asks it) or types (the compiler does).
The rules are the tables below; change them together with docs/ARCHITECTURE.md.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

SOURCE_FOLDERS = ("proto", "fsserver", "fsclient", "tests")
SUFFIXES = (".h", ".cc")

# Who may include whom, by folder. A folder may always include itself. Not listed here: anything goes.
# The libraries an outer folder may use are those it says in its CMakeLists.txt.
MAY_INCLUDE = {
    "proto/base": set(),
    "proto/schema": set(),
    "proto/wire": {"proto/base"},
    "proto/transport": {"proto/base", "proto/wire"},
    "proto/crypto": {"proto/base"},
    "proto/io": {"proto/base"},
    "proto/rpc": {"proto/base", "proto/wire", "proto/transport", "proto/crypto", "proto/io", "proto/schema"},
    "fsserver": {"proto/*", "fsserver/*"},
    "fsclient": {"proto/*", "fsclient/*"},
}
# Where every local include must begin.
ROOTS = ("proto/", "fsserver/", "fsclient/", "tests/")

# What the pure core may not name: it has no socket, clock, thread or hidden state. Each with what to use.
PURE_FOLDERS = ("proto/base", "proto/wire", "proto/transport")
BANNED_IN_CORE = [
    (r"#include <(thread|mutex|shared_mutex|condition_variable|future|atomic|stop_token|semaphore|latch|barrier)>",
     "threads and locks: the core belongs to one thread at a time"),
    (r"#include <(sys/[a-z_]+|unistd|fcntl|poll|netdb|netinet/[a-z_]+|arpa/[a-z_]+|pthread|signal|time)\.h>|"
     r"#include <(ctime|csignal)>",
     "system headers: only proto/io makes system calls"),
    (r"\bstd::(this_thread|thread|jthread|mutex|atomic|condition_variable|async)\b",
     "threads: the core belongs to one thread at a time"),
    (r"\b(system_clock|steady_clock|high_resolution_clock)\b|\bclock_gettime\b|\bgettimeofday\b|[^\w.>]::?time\(",
     "clocks: time is an argument (proto/base/time.h)"),
    (r"\b(sleep_for|sleep_until|usleep|nanosleep)\b", "sleeping: say it in next_timeout()"),
    (r"(?<![\w.>])::(socket|send|sendto|sendmsg|sendmmsg|recv|recvfrom|recvmsg|recvmmsg|read|write|close|open|poll)\(",
     "system calls: only proto/io makes them"),
    (r"\bstd::random_device\b|(?<![\w:])s?rand\(\)|(?<![\w:.])srand\(", "randomness: Random with a seed (proto/base/random.h)"),
    (r"\bgetenv\b|\bstd::(cout|cerr|clog|cin|fstream|ifstream|ofstream)\b", "the outside world: return values and events"),
    (r"^\s*(static|thread_local)\s+(?!constexpr\b|const\b|constinit const\b|_?assert|_assert)[\w:<>,\s\*&]+\b\w+\s*(=|\{|;)",
     "mutable globals: state belongs to an object"),
]
# Where the core itself says the banned word, with the reason.
BANNED_EXCEPTIONS = {
    "proto/base/check.h": "prints why the process ends",
    "proto/base/result.cc": "names errno numbers",
}

# Longer ones must shrink first. Ratchets: lower them when the longest gets shorter, never raise them.
FILE_LINES_MAX = 700
FUNCTION_LINES_MAX = 90
# Functions that were longer when the rule came. Only ever to be shortened.
LONG_FUNCTIONS = {("tests/unit/fsclient/fake_server.cc", "FakeServer::run"): 134}
LINE_COLUMNS_WARN = 110      # as .clang-format; told, not an error, since strings and tables may stand

# Each named constant of Tusk's own congestion controllers, and of what serves them, is explained, file by file, with
# its value. Not of those that are there for comparison (CUBIC, BBR).
CONSTANTS = "docs/CONSTANTS.md"
CONSTANTS_FOLDER = "proto/transport"
CONSTANTS_FILES = re.compile(r"(congestion|model_controller\w*|delivery_rate|goodput|carried_rate|base_doubt|emptying|startup|newest_loss|usual_queue|capacity_check|"
                             r"overrun|contention|path_loss|policed_rate|buffer_room|longer_path|train_capacity|"
                             r"train_estimator|train_room|round_queue|siblings|flow_news|capacity_probe|remembered_path|"
                             r"rtt_estimator|pacer|background_controller|proactive_copies|tail_parity)\.(h|cc)")

UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
THIS_FILE = "tests/tidy/tidy_test.py"


class Source:
    """One file: its text, and its code with comments and string contents blanked out."""

    def __init__(self, root, path):
        self.path = path.relative_to(root).as_posix()
        self.text = path.read_text(encoding="utf-8", errors="replace")
        self.lines = self.text.split("\n")
        self.code = blank_comments_and_strings(self.text)
        self.code_lines = self.code.split("\n")
        self.neighbours = {other.name for other in path.parent.iterdir()}

    @property
    def folder(self):
        parts = self.path.split("/")
        return "/".join(parts[:2]) if parts[0] == "proto" else parts[0]

    @property
    def is_header(self):
        return self.path.endswith(".h")


LEXEME = re.compile(
    r'R"(?P<tag>[^()\\\s]{0,16})\(.*?\)(?P=tag)"'      # raw string
    r'|//[^\n]*|/\*.*?\*/'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'",
    re.DOTALL)


def blank_comments_and_strings(text):
    def blank(match):
        token = match.group(0)
        # The names of includes stay readable.
        line_start = text.rfind("\n", 0, match.start()) + 1
        if text[line_start:match.start()].strip() == "#include":
            return token
        return "".join(c if c == "\n" else " " for c in token)
    return LEXEME.sub(blank, text)


# ---------------------------------------------------------------- rules: each yields (path, line, what)

def check_includes(source):
    allowed = MAY_INCLUDE.get(source.folder)
    for number, line in enumerate(source.code_lines, 1):
        match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        if not match:
            continue
        target = match.group(1)
        if not target.startswith(ROOTS):
            # A test's own helpers may be named as neighbours.
            if source.folder == "tests" and "/" not in target and target in source.neighbours:
                continue
            yield source.path, number, f'include "{target}" must start at the repository\'s root'
            continue
        if allowed is None:
            continue
        parts = target.split("/")
        folder = "/".join(parts[:2]) if parts[0] == "proto" else parts[0]
        if folder == source.folder or folder in allowed or parts[0] + "/*" in allowed:
            continue
        yield source.path, number, f'{source.folder} must not include "{target}"'


def check_purity(source):
    if source.folder not in PURE_FOLDERS or source.path in BANNED_EXCEPTIONS:
        return
    for number, line in enumerate(source.code_lines, 1):
        for pattern, why in BANNED_IN_CORE:
            if re.search(pattern, line):
                yield source.path, number, f"banned here: {why}"
        if re.match(r"[\w:<>,\s\*&]+\s+g_\w+", line):
            yield source.path, number, "banned here: mutable globals: state belongs to an object"


def check_header(source):
    if not source.is_header:
        return
    if "#pragma once" not in source.code_lines:
        yield source.path, 1, "a header needs #pragma once"
    if not source.lines[0].startswith("//"):
        yield source.path, 1, "a header starts with a comment: what it is, and what it does not do"


def check_lengths(source):
    count = len(source.lines) - 1
    if count > FILE_LINES_MAX:
        yield source.path, count, f"{count} lines; at most {FILE_LINES_MAX}: split it by what it does"
    for name, start, length in functions(source.code_lines):
        longest = LONG_FUNCTIONS.get((source.path, name), FUNCTION_LINES_MAX)
        if length > longest:
            yield source.path, start, f"{name} has {length} lines; at most {longest}"


NOT_A_FUNCTION = re.compile(r"^\s*(namespace|class|struct|enum|union|extern|export|using|#)\b|^\s*#")


def functions(lines):
    """(name, first line, number of lines) of every outermost block that is not a namespace or a type.

    Goes by braces alone: what opens at the level of a namespace or a class and is none itself.
    """
    depth_kinds = []   # "outer" for namespaces and types, "inner" inside functions
    head = ""
    start = None
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith("#"):
            continue
        for char in line:
            if char == "{":
                outer = all(kind == "outer" for kind in depth_kinds)
                is_type = NOT_A_FUNCTION.search(last_statement(head)) and "(" not in last_statement(head).split("{")[0]
                if outer and not is_type and "(" in last_statement(head):
                    depth_kinds.append("function")
                    start = (function_name(head), number)
                else:
                    depth_kinds.append("outer" if outer and is_type else "inner")
                head = ""
            elif char == "}":
                kind = depth_kinds.pop() if depth_kinds else "inner"
                if kind == "function" and start:
                    yield start[0], start[1], number - start[1] + 1
                    start = None
                head = ""
            elif char == ";":
                head = ""
            else:
                head += char
        head += "\n"


def last_statement(head):
    return head.strip().split(";")[-1].strip()


def function_name(head):
    match = re.search(r"([\w:~]+)\s*\(", head)
    return match.group(1) if match else "a function"


def check_text(source):
    for number, line in enumerate(source.lines, 1):
        if "\t" in line:
            yield source.path, number, "a tab"
        if line != line.rstrip():
            yield source.path, number, "spaces at the end of the line"
        match = UNFINISHED.search(line)
        if match:
            yield source.path, number, f"{match.group(1)}: finish it, or file an issue"


RULES = (check_includes, check_purity, check_header, check_lengths, check_text)


# ---------------------------------------------------------------- running

def sources(root):
    for folder in SOURCE_FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SUFFIXES and path.is_file():
                yield Source(root, path)


def check_scripts(root):
    """Scripts have no walls, but no unfinished business either."""
    for path in sorted((root / "tests").rglob("*.py")) + sorted((root / "tests").rglob("*.sh")):
        name = path.relative_to(root).as_posix()
        if name == THIS_FILE:
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
            match = UNFINISHED.search(line)
            if match:
                yield name, number, f"{match.group(1)}: finish it, or file an issue"
            if "\t" in line and path.suffix == ".py":
                yield name, number, "a tab"


CONSTANT = re.compile(r"\bconstexpr\s+[\w:<>]+\s+(k[A-Z]\w*)\s*(?:=\s*([^;]+)|\{([^;]*)\})\s*;")
CONSTANT_ROW = re.compile(r"\| `(k[A-Z]\w*)` \| `([^`]*)`")


def check_constants(root):
    """A table for each file in CONSTANTS, under its name: a row for each constant, with the value of the code."""
    told = {}     # (file, constant): (line, value)
    table = ""
    if (root / CONSTANTS).is_file():
        for number, line in enumerate((root / CONSTANTS).read_text(encoding="utf-8").split("\n"), 1):
            if line.startswith("## "):
                table = line[3:].strip()
            match = CONSTANT_ROW.match(line)
            if match and (table, match.group(1)) in told:
                yield CONSTANTS, number, f"{match.group(1)} of {table} is here twice"
            elif match:
                told[table, match.group(1)] = number, " ".join(match.group(2).split())
            elif line.startswith("| `"):
                yield CONSTANTS, number, "a row begins with a constant and its value, both in backticks"
    for path in sorted((root / CONSTANTS_FOLDER).glob("*")):
        if not CONSTANTS_FILES.fullmatch(path.name):
            continue
        source = Source(root, path)
        for match in CONSTANT.finditer(source.code):
            name, value = match.group(1), " ".join((match.group(2) or match.group(3) or "").split())
            line = source.code.count("\n", 0, match.start()) + 1
            number, said = told.pop((path.name, name), (0, ""))
            if number == 0:
                yield source.path, line, f"{name} has no row in {CONSTANTS}: say what it decides and why"
            elif said != value:
                yield CONSTANTS, number, f"{name} of {path.name} is {value}, not {said}: say why"
    for (file, name), (number, _) in told.items():
        yield CONSTANTS, number, f"there is no constant {name} in {file}"


def breaches(root):
    found = []
    for source in sources(root):
        for rule in RULES:
            found.extend(rule(source))
    found.extend(check_scripts(root))
    found.extend(check_constants(root))
    return found


def wide_lines(root):
    return [f"{source.path}:{number}" for source in sources(root)
            for number, line in enumerate(source.lines, 1) if len(line) > LINE_COLUMNS_WARN]


def warn_of_format(root):
    """clang-format's judgement, where it is installed: told, never an error."""
    wide = wide_lines(root)
    if wide:
        print(f"note: {len(wide)} lines are wider than {LINE_COLUMNS_WARN} columns, the first at {wide[0]}")
    files = [str(root / source.path) for source in sources(root)]
    try:
        result = subprocess.run(["clang-format", "--dry-run", *files], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return
    unformatted = {line.split(":")[0] for line in result.stderr.split("\n") if "[-Wclang-format-violations]" in line}
    if unformatted:
        print(f"note: clang-format would change {len(unformatted)} files (./dev lint shows them)")


def main(arguments):
    if arguments == ["--canaries"]:
        return run_canaries()
    root = pathlib.Path(arguments[0]).resolve() if arguments else pathlib.Path(__file__).resolve().parents[2]
    found = breaches(root)
    for path, line, what in found:
        print(f"{path}:{line}: {what}")
    checked = sum(1 for _ in sources(root))
    if checked == 0:
        print(f"nothing to check under {root}")
        return 1
    warn_of_format(root)
    print(f"tidy: {checked} files, {len(found)} breaches")
    return 1 if found else 0


# ---------------------------------------------------------------- canaries: one fault each, all must be found

GOOD_HEADER = '// A thing.\n#pragma once\n\n#include <vector>\n\nnamespace tusk {\nint f(int x);\n}  // namespace tusk\n'


def function_of(lines):
    return "namespace tusk {\nint f(int x) {\n" + "  x += 1;\n" * (lines - 2) + "}\n}  // namespace tusk\n"


CANARIES = [
    # (name, file, text, part of the complaint)
    ("wire must not know transport", "proto/wire/a.cc", '#include "proto/transport/a.h"\n', "must not include"),
    ("transport must not know crypto", "proto/transport/a.cc", '#include "proto/crypto/a.h"\n', "must not include"),
    ("transport must not know io", "proto/transport/a.h",
     '// x\n#pragma once\n#include "proto/io/clock.h"\n', "must not include"),
    ("transport must not know rpc", "proto/transport/a.cc", '#include "proto/rpc/a.h"\n', "must not include"),
    ("base knows nobody", "proto/base/a.cc", '#include "proto/wire/a.h"\n', "must not include"),
    ("crypto knows only base", "proto/crypto/a.cc", '#include "proto/wire/types.h"\n', "must not include"),
    ("io knows only base", "proto/io/a.cc", '#include "proto/transport/a.h"\n', "must not include"),
    ("the server does not know the client", "fsserver/a.cc", '#include "fsclient/a.h"\n', "must not include"),
    ("the client does not know the server", "fsclient/sub/a.cc", '#include "fsserver/a.h"\n', "must not include"),
    ("nobody knows the tests", "proto/rpc/a.cc", '#include "tests/support/link/link.h"\n', "must not include"),
    ("includes start at the root", "proto/wire/a.cc", '#include "a.cc"\n', "repository's root"),
    ("tests name no stranger's headers", "tests/unit/x/a.cc", '#include "b.h"\n', "repository's root"),
    ("no threads in the core", "proto/transport/a.cc", "#include <thread>\n", "threads"),
    ("no locks in the core", "proto/base/a.cc", "std::mutex m;\n", "threads"),
    ("no clock in the core", "proto/transport/a.cc", "auto t = std::chrono::steady_clock::now();\n", "clocks"),
    ("no time() in the core", "proto/transport/a.cc", "auto t = ::time(nullptr);\n", "clocks"),
    ("no sleeping in the core", "proto/wire/a.cc", "void f() { usleep(1); }\n", "sleeping"),
    ("no sockets in the core", "proto/transport/a.cc", "#include <sys/socket.h>\n", "system"),
    ("no system calls in the core", "proto/transport/a.cc", "int n = ::send(1, p, 2, 0);\n", "system calls"),
    ("no chance in the core", "proto/transport/a.cc", "int n = rand();\n", "randomness"),
    ("no true chance in the core", "proto/base/a.cc", "std::random_device d;\n", "randomness"),
    ("no globals in the core", "proto/transport/a.cc", "static int counter = 0;\n", "mutable globals"),
    ("no hidden globals in the core", "proto/wire/a.cc", "  static std::vector<int> cache;\n", "mutable globals"),
    ("headers are guarded", "fsserver/a.h", "// A thing.\nint f();\n", "#pragma once"),
    ("headers say what they are", "fsclient/a.h", "#pragma once\n", "starts with a comment"),
    ("files stay short", "fsserver/a.cc", "// x\n" * (FILE_LINES_MAX + 1), "split it"),
    ("functions stay short", "fsserver/a.cc", function_of(FUNCTION_LINES_MAX + 1), "f has"),
    ("methods stay short", "fsserver/a.h",
     "// x\n#pragma once\nclass A {\n" + function_of(FUNCTION_LINES_MAX + 1).split("\n", 1)[1].rsplit("}", 1)[0] +
     "};\n", "f has"),
    ("no tabs", "proto/wire/a.cc", "\tint x;\n", "a tab"),
    ("no spaces at the end", "proto/wire/a.cc", "int x; \n", "end of the line"),
    ("nothing unfinished", "fsclient/a.cc", "// TO" + "DO: later\n", "finish it"),
    ("constants are explained", "proto/transport/path_loss.h",
     "// x\n#pragma once\n  static constexpr int kX = 1;\n", "kX has no row"),
    ("explained constants exist", CONSTANTS, "## path_loss.h\n| `kX` | `1` | x | y |\n", "no constant kX"),
    ("rows of constants can be read", CONSTANTS, "## path_loss.h\n| `kX` | 1 | x | y |\n", "both in backticks"),
    ("nothing unfinished in scripts", "tests/a.py", "# FIX" + "ME\n", "finish it"),
]

# A constant's row, and whether it tells the truth of path_loss.cc, where kX is 2 * 3.
CONSTANT_ROWS = [("path_loss.cc", "2 * 3", True), ("path_loss.cc", "6", False), ("path_loss.h", "2 * 3", False)]

# These look like faults and are none.
INNOCENTS = [
    ("a good header", "proto/base/a.h", GOOD_HEADER),
    ("banned words in comments", "proto/transport/a.cc", "// no std::mutex, rand() or steady_clock here\n"),
    ("banned words in strings", "proto/transport/a.cc", 'const char* kText = "std::mutex rand() usleep";\n'),
    ("constants", "proto/wire/a.cc", "static constexpr int kX = 1;\nstatic const char* const kY = nullptr;\n"),
    ("static functions", "proto/wire/a.h",
     "// x\n#pragma once\nstruct A {\n  [[nodiscard]] static int make(int x);\n  static A of(int x) { return {}; }\n};\n"),
    ("methods named like calls", "proto/transport/a.cc", "void f(S& s) { s.send(1); stream.close(2); }\n"),
    ("threads where they belong", "proto/io/a.cc", "#include <thread>\nstatic int kept = 0;\n"),
    ("a long namespace", "fsserver/a.cc", "namespace tusk {\n" + "int x;\n" * 200 + "}  // namespace tusk\n"),
    ("a function that just fits", "fsserver/a.cc", function_of(FUNCTION_LINES_MAX)),
    ("a test's neighbour", "tests/unit/x/a.cc", '#include "a.cc"\n'),
    ("functions of the controller", "proto/transport/path_loss.cc",
     "constexpr int kind(int x) { return x; }\nif constexpr (kX) {}\n// constexpr int kY = 1;\n"),
    ("constants of others", "proto/transport/a.cc", "constexpr int kX = 1;\n"),
    ("digit separators", "proto/wire/a.cc", "constexpr int kA = 10'000'000;\nconstexpr int kB = 1'000;\n"),
]


def run_canaries():
    failures = 0
    for name, file, text, complaint in CANARIES:
        found = breaches_of_one(file, text)
        if not any(complaint in what for _, _, what in found):
            print(f"canary survived: {name}: nothing said of '{complaint}'")
            failures += 1
    if not has_wide_line("// " + "x" * LINE_COLUMNS_WARN + "\n") or has_wide_line("// narrow\n"):
        print("canary survived: wide lines are not told")
        failures += 1
    for file, value, true in CONSTANT_ROWS:
        files = {"proto/transport/path_loss.cc": "constexpr double kX =\n    2 * 3;  // x\n",
                 CONSTANTS: f"## {file}\n| `kX` | `{value}` of it | x | y |\n"}
        if bool(with_files(files, breaches)) == true:
            print(f"canary survived: constants: a row in {file} with {value}")
            failures += 1
    for name, file, text in INNOCENTS:
        for _, line, what in breaches_of_one(file, text):
            print(f"innocent accused: {name}: line {line}: {what}")
            failures += 1
    print(f"tidy: {len(CANARIES)} canaries, {len(INNOCENTS)} innocents, {failures} wrong verdicts")
    return 1 if failures else 0


def with_files(files, question):
    with tempfile.TemporaryDirectory() as folder:
        for file, text in files.items():
            path = pathlib.Path(folder) / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return question(pathlib.Path(folder))


def breaches_of_one(file, text):
    return with_files({file: text}, breaches)


def has_wide_line(text):
    return bool(with_files({"proto/wire/a.cc": text}, wide_lines))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
