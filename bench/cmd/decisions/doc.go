// Command decisions replays one trace through every limiter and judges each decision: how many events each admits, how
// many it should not have admitted, and how many it refused too early. It starts the servers that it needs.
package main
