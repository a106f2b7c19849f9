package client_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"twotier.dev/twotier/httpapi/client"
)

// example is the testing.TB of a bed in an example.
type example struct {
	testing.TB
	ends []func()
}

func (e *example) Context() context.Context { return context.Background() }
func (e *example) Helper()                  {}
func (e *example) Cleanup(fn func())        { e.ends = append(e.ends, fn) }
func (e *example) Fatal(args ...any)        { panic(fmt.Sprint(args...)) }
func (e *example) Error(args ...any)        { panic(fmt.Sprint(args...)) }

// startNode starts a node. It returns its address and a function that stops it.
func startNode() (address string, stop func()) {
	e := new(example)
	b := newBed(e, 1)
	return b.nodes[0].address, func() {
		for _, end := range slices.Backward(e.ends) {
			end()
		}
	}
}

// A user may reply twice a minute.
func ExampleClient_IsActionAllowed() {
	address, stop := startNode()
	defer stop()
	ctx := context.Background()
	c, err := client.New(client.Options{Addresses: []string{address}})
	if err != nil {
		panic(err)
	}
	defer c.Close(ctx)
	for range 3 {
		fmt.Println(c.IsActionAllowed(ctx, "ann", "reply", time.Minute, 2))
	}
	// Output:
	// true <nil>
	// true <nil>
	// false <nil>
}

// A client learns the other nodes from one, sends each call to the owner of its key, and may be
// shared.
func ExampleClient_Acquire() {
	address, stop := startNode()
	defer stop()
	ctx := context.Background()
	c, err := client.New(client.Options{Addresses: []string{address}})
	if err != nil {
		panic(err)
	}
	defer c.Close(ctx)
	answer, err := c.Acquire(ctx, client.AcquireRequest{Check: client.Check{
		Key: "alice", N: 1,
		Limits: []client.Limit{
			{Window: time.Minute, Max: 15},
			{Window: 24 * time.Hour, Max: 50},
		},
	}})
	if err != nil {
		panic(err)
	}
	fmt.Println(answer.Allowed, answer.Limits[0].Remaining)
	// Output: true 14
}
