package main

import (
	"math"

	"twotier/syncer"
)

// Load is what has to be carried.
type Load struct {
	// Name is how tables call it.
	Name string `json:"name"`
	// Rate is decisions per second, Batched whether they come many in a call.
	Rate    float64 `json:"rate"`
	Batched bool    `json:"batched"`
	// Keys live within the longest window, a day. Each decision touches PerDecision of them, under Rules rules together.
	Keys        float64 `json:"keys"`
	PerDecision float64 `json:"keys_per_decision"`
	Rules       float64 `json:"rules"`
	// Distribution is hot, uniform, zipf or distinct.
	Distribution string `json:"distribution"`
	// Flush is the flush interval in seconds.
	Flush float64 `json:"flush_seconds"`
	// New is the share of touches that meet a key for the first time; negative means: every live key once a day.
	New float64 `json:"new"`
}

// Machine is what a node and a Redis have.
type Machine struct {
	Cores float64 `json:"cores"`
	// Memory and RedisMemory are in bytes.
	Memory      float64 `json:"memory_bytes"`
	RedisMemory float64 `json:"redis_memory_bytes"`
	// Use is the share of processors that may be used: the rest is for bursts and for a node that fails.
	Use float64 `json:"use"`
}

// Need is what a load takes.
type Need struct {
	Load
	// Flushed and New are keys per second, Rounds the partitions that have something to flush.
	Flushed float64 `json:"flushed_per_second"`
	Created float64 `json:"created_per_second"`
	Rounds  float64 `json:"rounds_per_second"`
	// ServiceCores and RedisCores are busy all the time.
	ServiceCores float64 `json:"service_cores"`
	RedisCores   float64 `json:"redis_cores"`
	// ServiceBytes and RedisBytes are memory, of all keys that live.
	ServiceBytes float64 `json:"service_bytes"`
	RedisBytes   float64 `json:"redis_bytes"`
	// Network is bytes per second between all nodes and Redis.
	Network float64 `json:"network_bytes_per_second"`
	// Nodes and Shards are what it comes to if memory is to hold all keys.
	Nodes  int `json:"nodes"`
	Shards int `json:"redis_shards"`
	// Fewest is the nodes by processor alone, which keep in memory the keys that are asked for most and read others back,
	// Loaded a second; FewestShards is the Redis servers that go with it.
	Fewest       int     `json:"fewest_nodes"`
	Loaded       float64 `json:"loaded_per_second"`
	FewestShards int     `json:"fewest_redis_shards"`
}

const day = 86_400

// need works out what a load takes. The number of nodes decides how much is forwarded and how much is read back, and that how many
// there must be, so it is looked for step by step.
func (c *Constants) need(l Load, m Machine) (n Need, err error) {
	n.Load = l
	touches := l.Rate * l.PerDecision
	perFlush, err := different(l.Distribution, l.Keys, touches*l.Flush)
	if err != nil {
		return n, err
	}
	n.Flushed = perFlush / l.Flush
	n.Rounds = changed(perFlush) / l.Flush
	created := l.New
	if created < 0 {
		perDay, _ := different(l.Distribution, l.Keys, touches*day)
		created = perDay / (touches * day)
	}
	n.Created = touches * created
	size := c.size(touches * day / l.Keys)
	n.ServiceBytes, n.RedisBytes = l.Keys*size.Service*c.Overhead, l.Keys*size.Redis
	n.RedisCores = (n.Flushed*c.RedisFlush + n.Rounds*c.RedisRound + n.Created*c.RedisNew) / 1e6
	for n.Fewest = 1; ; n.Fewest++ {
		inMemory := float64(n.Fewest) * m.Memory / n.ServiceBytes
		n.Loaded = touches * max(rest(l.Distribution, l.Keys, inMemory)-created, 0)
		if c.cores(n, n.Fewest, n.Loaded) <= float64(n.Fewest)*m.Cores*m.Use || n.Fewest >= 10_000 {
			break
		}
	}
	n.Network = n.Flushed * c.FlushBytes
	n.Nodes = max(n.Fewest, int(math.Ceil(n.ServiceBytes/m.Memory)))
	n.ServiceCores = c.cores(n, n.Nodes, 0)
	shards := func(cores float64) int {
		return max(int(math.Ceil(cores/m.Use)), int(math.Ceil(n.RedisBytes/m.RedisMemory)), 1)
	}
	n.Shards, n.FewestShards = shards(n.RedisCores), shards(n.RedisCores+n.Loaded*c.RedisLoad/1e6)
	return n, nil
}

// changed is how many partitions so many keys are of.
func changed(keys float64) float64 {
	return syncer.DefaultPartitions * -math.Expm1(-keys/syncer.DefaultPartitions)
}

// cores is what the service needs with so many nodes, and so many keys read back a second.
func (c *Constants) cores(n Need, nodes int, loaded float64) float64 {
	elsewhere := c.Forward
	if n.PerDecision > 1 {
		elsewhere = c.Agree
	}
	us := c.Base + c.Rule*max(n.Rules-2, 0) + elsewhere*float64(nodes-1)/float64(nodes)
	if !n.Batched {
		us += c.Single
	}
	return (n.Rate*us + n.Flushed*c.Flush + n.Rounds*c.Round + n.Created*c.New + loaded*c.Load) / 1e6
}
