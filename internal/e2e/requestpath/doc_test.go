// Package requestpath counts what one warm request over HTTP executes at the node that owns its
// key: the files with a statement that every such request executes, their functions, and how deep
// the calls are from the handler to the bucket. docs/architecture.md has to list these files.
//
// It is measured with a server that is built with coverage and run twice for as long, with some
// requests and with many more. What the many have executed at least once each is on the path; what
// runs in the background cancels out. For the depth, an overlay (go help build, -overlay) has the
// function that changes a bucket print its stack.
//
//	go test ./internal/e2e/requestpath -v
package requestpath
