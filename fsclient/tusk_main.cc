// The program `tusk`.
#include "fsclient/cli.h"
#include "proto/base/commit.h"

int main(int argc, char** argv) { return tusk::client::run_command_line(argc, argv, "commit " TUSK_COMMIT); }
