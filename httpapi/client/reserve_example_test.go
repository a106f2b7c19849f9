package client_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"twotier.dev/twotier/httpapi/client"
)

// A language model's answer costs tokens that nobody knows beforehand: reserve an estimate, and
// settle the actual cost.
func ExampleClient_Reserve() {
	address, stop := startNode()
	defer stop()
	ctx := context.Background()
	c, err := client.New(client.Options{Addresses: []string{address}})
	if err != nil {
		panic(err)
	}
	defer func() { _ = c.Close(ctx) }()
	estimate := client.AcquireRequest{Check: client.Check{Key: "tokens:ann", N: 4000,
		Limits: []client.Limit{{Window: time.Minute, Max: 10_000}}}}
	for _, took := range []int64{350, 5200, 900} {
		r, a, err := c.Reserve(ctx, estimate)
		if err != nil {
			panic(err)
		}
		if r == nil {
			fmt.Println("wait, for this many are left:", a.Limits[0].Remaining)
			continue
		}
		if err := r.Settle(ctx, took); err != nil { // after the model has answered
			panic(err)
		}
		fmt.Println("settled", took)
	}
	// Output:
	// settled 350
	// settled 5200
	// settled 900
}

// A third-party API allows two requests a second for all of our machines together.
func ExampleTransport() {
	address, stop := startNode()
	defer stop()
	api := httptest.NewServer(http.NotFoundHandler())
	defer api.Close()
	c, err := client.New(client.Options{Addresses: []string{address}})
	if err != nil {
		panic(err)
	}
	defer func() { _ = c.Close(context.Background()) }()
	turns, err := client.NewTransport(client.TransportOptions{
		GateOptions: client.GateOptions{Client: c, Outage: client.FailClosed, Wait: time.Second,
			Limits: []client.Limit{{Window: time.Second, Max: 2}}},
		Checks: func(r *http.Request) []client.Check {
			return []client.Check{{Key: "api:" + r.URL.Hostname()}}
		},
	})
	if err != nil {
		panic(err)
	}
	for range 3 {
		resp, err := (&http.Client{Transport: turns}).Get(api.URL)
		if err != nil {
			panic(err)
		}
		_ = resp.Body.Close()
		fmt.Println(resp.StatusCode)
	}
	// Output:
	// 404
	// 404
	// 404
}
