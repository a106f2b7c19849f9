// Command plan works out what a load needs: nodes, memory, Redis shards and network, from constants that are taken from measured
// results, not from anybody's guess. It checks itself against measured points that the constants were not taken from.
//
// # The model
//
// A decision costs the service a base and something for every rule. A key that changes within a flush interval is flushed once,
// however often it changed. A key that was never seen costs something more, as does one that is read back from Redis because memory
// could not hold it. So what counts beside the rate is how many different keys an interval sees, and what part of them fits:
//
//	touches  = rate x keys of a decision
//	flushed  = different keys among the touches of one interval / interval
//	new      = touches that meet a key for the first time
//	loaded   = touches that meet a key which memory does not hold (none if it holds all; else the keys that are asked for least)
//	rounds   = partitions that change within an interval / interval
//	CPU      = rate x base + flushed x flush + rounds x round + new x new + loaded x load   (of the service, and the same of Redis without a base)
//	memory   = live keys x bytes of a key with as many events as it has, in the service and in Redis
//	network  = flushed x bytes of a flush + loaded x bytes of a load   (between the nodes and Redis)
//
// A node also forwards what it does not own, (nodes-1)/nodes of the touches, at a price that is measured from clusters; a
// decision over two keys with different owners has another, as they have to agree.
package main
