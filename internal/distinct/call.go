package distinct

import (
	"fmt"
	"runtime/debug"
)

// Call is one of several operations that run together, and its outcome.
type Call struct {
	Op *Op
	// Values are the values to add.
	Values [][]byte
	Res    *Result
	Err    error
}

// Run runs the operation. If it panics, its error is a [PanicError]: on a goroutine started for
// part of a batch, nothing else recovers.
func (c *Call) Run(operation func() error) {
	defer func() {
		if what := recover(); what != nil {
			c.Err = &PanicError{what, debug.Stack()}
		}
	}()
	c.Err = operation()
}

// PanicError is the error of an operation that panicked.
type PanicError struct {
	What  any
	Stack []byte
}

func (p *PanicError) Error() string { return fmt.Sprint("panic: ", p.What) }
