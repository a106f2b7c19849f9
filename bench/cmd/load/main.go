// Command load sends load to a running server and prints what it measured as JSON.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"twotier/bench/load"
)

func main() {
	var o load.Options
	flag.StringVar(&o.Addr, "addr", "127.0.0.1:8080", "`host:port` of the server")
	flag.StringVar(&o.Op, "op", "add", "add, acquire, batch (of quiet adds) or batch-acquire")
	flag.StringVar(&o.Keys, "keys", "uniform", "same, uniform, zipf or distinct")
	flag.Uint64Var(&o.Space, "space", 1_000_000, "number of `keys` that uniform and zipf draw from")
	flag.Uint64Var(&o.Seed, "seed", 1, "of the keys")
	flag.IntVar(&o.PerCall, "ops", 1000, "`operations` of a batch")
	flag.IntVar(&o.Conns, "conns", 16, "`connections`")
	flag.Float64Var(&o.Rate, "rate", 0, "`operations` per second of an open loop; 0 is a closed loop")
	flag.DurationVar(&o.Warmup, "warmup", time.Second, "`time` before the measurement")
	flag.DurationVar(&o.Duration, "duration", 10*time.Second, "`time` of the measurement")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	result, err := load.Run(ctx, o)
	if err != nil {
		log.Fatal(err)
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	if err := errors.Join(out.Encode(result), result.Err()); err != nil {
		log.Fatal(err)
	}
}
