// Package ruletest runs tests of rules: timed requests and their expected verdicts, in YAML.
//
// [Read] reads a file of tests with the rules and namespaces that it names, and reports all
// mistakes with line and column. [File.Run] runs the tests. Each of them has a new node, which
// counts in memory, and a clock that only the test moves: a month passes in a moment. Rules are
// resolved, and limits decided, by the code of a server.
//
// There is one node, which is never behind or overloaded. Failures of nodes and of Redis are not
// part of a test.
package ruletest
