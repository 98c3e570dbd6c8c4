// The subcommands. Each function adds one to the program; its callback runs the command and throws Error on failure.
#pragma once

#include <CLI/CLI.hpp>

namespace zeepo::cli {

void add_train(CLI::App& program);
void add_generate(CLI::App& program);
void add_serve(CLI::App& program);
void add_plan(CLI::App& program);
void add_probe(CLI::App& program);
void add_tokenize(CLI::App& program);
void add_inspect(CLI::App& program);
void add_export(CLI::App& program);
void add_report(CLI::App& program);
void add_compare(CLI::App& program);

}  // namespace zeepo::cli
