// Package pace makes calls from several goroutines and times them. A closed loop keeps each of them busy and finds the largest
// throughput. An open loop makes calls when they are due, whether or not those before have returned in time, and measures
// from when a call was due: a stall counts for every call that had to wait for it (coordinated omission, see Gil Tene, "How
// NOT to Measure Latency").
package pace
