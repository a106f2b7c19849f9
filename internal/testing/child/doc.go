// Package child runs the programs that tests start, so that none outlives them: on Linux a child is
// killed when the process that started it ends, however that ends.
//
// A child that has been reaped is never signalled, whoever has its pid by then: os.Process sees to
// that. The methods of a [Child] may be called from several goroutines at once. It is for Unix
// only.
package child
