package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go watchSignals(signals, cancel, os.Stderr, os.Exit)
	os.Exit(run(ctx, os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr))
}

// watchSignals calls cancel on the first signal and exit on the second.
func watchSignals(signals <-chan os.Signal, cancel func(), stderr io.Writer, exit func(int)) {
	<-signals
	cancel()
	s := <-signals
	fmt.Fprintf(stderr, "twotier: %v again: leaving at once, without waiting for anything\n", s)
	exit(exitFailed)
}
