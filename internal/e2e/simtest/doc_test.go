// Package simtest runs whole clusters in one process under testing/synctest: real nodes, gossip,
// peers and counters on a simulated network, over a simulated Redis with faults, with clocks that
// differ. A seed determines a schedule: the requests of clients and how long they wait, whether
// Redis deletes buckets by age, and which faults happen meanwhile, one after the other or several
// at once. One of the clients is the Go client, over HTTP and connections that break. At the end of
// a schedule all faults are healed. Then the ledger of the clients' answers is compared with the
// reports of Redis and every node, at every level, and with the information behind each decision.
//
// In half of the schedules all processes join at the address of the first one, as in a cluster
// whose --join names one node; only the list in Redis lets that process find the others.
//
// With -rules clients also change the rules, acquire by them, and lift bans: each answer is judged
// by the version that it names. With -distinct they add and count distinct values, alone and in
// batches, also through the Go client: in the end every acknowledged value is there, the values of
// each operation together, and within the limits. With -mixed a quarter of the schedules uses
// -rules, and an eighth -distinct.
//
// In a quarter of the schedules, with -holds in all, clients also acquire with holds, settle them
// once or several times at any node, renew them, and acquire and read by calendar periods, one of
// which begins meanwhile. Each hold is settled or released once at most, and if its end releases
// it, nothing remains of it. No more are open at a time than the limit allows, and none is after
// its end.
//
// TestScale needs no faults: it measures the traffic of a node in a larger cluster, and replaces
// all nodes under load.
//
//	go test ./internal/e2e/simtest -schedules=1000
//	go test ./internal/e2e/simtest -kind=chaos
//	go test ./internal/e2e/simtest -seed=42 -v
//	go test ./internal/e2e/simtest -run='TestScale$' -sizes=10,100 -v
package simtest
