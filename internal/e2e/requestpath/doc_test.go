// Package requestpath determines the code that one warm request over HTTP executes at the node that
// owns its key: the files with a statement that every such request executes, their functions, and
// how deep the calls are from the handler to the bucket. docs/architecture.md must list these
// files. It also reports the files that a request visits only for a guard: all that it executes
// there are conditions that let it pass.
//
// The test builds a server with coverage and runs it twice for the same time, with few requests and
// with many more. Statements that the additional requests executed at least once each are on the
// path; background work cancels out. For the depth, an overlay (go help build, -overlay) makes the
// function that changes a bucket print its stack.
//
//	go test ./internal/e2e/requestpath -v
package requestpath
