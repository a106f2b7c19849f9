package main

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/valyala/fasthttp"
)

// Nop is the cheapest possible HTTP server made with fasthttp. Its settings are the same as in
// twotier's server.
type Nop struct {
	Body string `help:"The answer to every request." default:"{}"`
}

// Run serves until ctx is done.
func (o *Nop) Run(ctx context.Context) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	body := []byte(o.Body)
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
	defer context.AfterFunc(ctx, func() { _ = server.Shutdown() })()
	fmt.Printf("{\"ready\":true,\"listen\":%q}\n", listener.Addr())
	return server.Serve(listener)
}
