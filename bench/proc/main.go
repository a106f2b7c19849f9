package proc

import (
	"context"
	"flag"
	"log"
	"os"
	"os/signal"
	"syscall"
)

// Main is the main function of a command: it parses the command line and runs fn, whose context ends with SIGINT or SIGTERM. An
// error is logged, and the exit status 1.
func Main(fn func(ctx context.Context) error) {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := fn(ctx); err != nil {
		log.Fatal(err)
	}
}
