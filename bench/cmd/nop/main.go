// Command nop serves the same answer to every request: the least that an HTTP server made with fasthttp can do. Its
// settings are those of twotier's server, its answer is what -body says.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"
)

func main() {
	body := flag.String("body", "{}", "`text` of the answer")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, []byte(*body)); err != nil {
		log.Fatal(err)
	}
}

func serve(ctx context.Context, body []byte) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	server := &fasthttp.Server{
		Handler: func(ctx *fasthttp.RequestCtx) {
			ctx.SetContentType("application/json")
			ctx.Response.SetBody(body)
		},
		Concurrency:                  16384 + 1,
		ReadBufferSize:               8 << 10,
		ReadTimeout:                  10 * time.Second,
		WriteTimeout:                 10 * time.Second,
		IdleTimeout:                  75 * time.Second,
		MaxRequestBodySize:           64 << 10,
		DisablePreParseMultipartForm: true,
		NoDefaultServerHeader:        true,
		NoDefaultDate:                true,
		NoDefaultContentType:         true,
		SecureErrorLogMessage:        true,
	}
	stopped := context.AfterFunc(ctx, func() { _ = server.Shutdown() })
	defer stopped()
	fmt.Printf("{\"ready\":true,\"listen\":%q}\n", listener.Addr())
	return server.Serve(listener)
}
