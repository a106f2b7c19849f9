// Package simtest runs whole clusters in one process under testing/synctest: real nodes, gossip,
// peers and counters on a simulated network, over a simulated Redis with faults, with clocks that
// differ. A schedule is made from a seed: what clients ask for and how long they wait, whether
// Redis deletes buckets by their age, and what goes wrong meanwhile, one thing after the other or
// several at once. One of the callers asks by the Go client, over HTTP and connections that break.
// After each, everything heals, and the ledger of what clients were told is held against what Redis
// and every node say, in every level, and against what each verdict had to know.
//
//	go test ./internal/e2e/simtest -schedules=1000
//	go test ./internal/e2e/simtest -kind=chaos
//	go test ./internal/e2e/simtest -seed=42 -v
package simtest
