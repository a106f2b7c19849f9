package clustertest

import (
	"testing"

	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
)

// cluster adds the questions of this package's tests to several nodes over one Redis.
type cluster struct{ *proctest.Cluster }

// start starts a Redis and n nodes on loopback.
func start(t *testing.T, n int, args ...string) *cluster {
	t.Helper()
	return startWith(t, program, n, args...)
}

// startWith is start with nodes of another program.
func startWith(t *testing.T, program *proctest.Program, n int, args ...string) *cluster {
	t.Helper()
	t.Parallel()
	c := newCluster(t, redistest.Start(t), args...)
	c.Program = program
	c.Grow(n)
	return c
}

// startOn starts n nodes over a Redis and waits until they are one cluster.
func startOn(t *testing.T, r proctest.Redis, n int, at func(int) proctest.Place,
	args ...string) *cluster {
	t.Helper()
	c := &cluster{proctest.NewCluster(t, program, r, at, args...)}
	c.Grow(n)
	return c
}

// newCluster returns a cluster without nodes over a server, on loopback, with the best way of
// expiry that the server has.
func newCluster(t *testing.T, server *redistest.Server, args ...string) *cluster {
	t.Helper()
	return &cluster{proctest.NewCluster(t, program, server, proctest.Loopback(),
		append([]string{"--redis-expiry", redistest.Expiry(t, server)}, args...)...)}
}
