// Package child runs the programs that tests start, so that none outlives them: on Linux a child is
// killed when the process that started it ends, however that ends.
//
// A child that has been reaped is never signalled, even if another process has its pid by then:
// os.Process guarantees that. A [Child] is safe for concurrent use. The package is for Unix only.
package child
