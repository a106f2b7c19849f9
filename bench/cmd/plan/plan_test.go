package main

import (
	"math"
	"testing"

	"twotier/bench/trace"
)

func TestDifferentAgainstDraws(t *testing.T) {
	const keys, n = 20_000, 30_000
	for _, distribution := range []string{"uniform", "zipf", "distinct", "hot"} {
		name := map[string]string{"hot": "same"}[distribution]
		if name == "" {
			name = distribution
		}
		draw, err := trace.NewKeys(name, 1, keys)
		if err != nil {
			t.Fatal(err)
		}
		seen := make(map[uint64]bool)
		for range n {
			seen[draw()] = true
		}
		got, err := different(distribution, keys, n)
		if err != nil || math.Abs(got/float64(len(seen))-1) > 0.03 {
			t.Errorf("%s: %.0f, drawn %d, %v", distribution, got, len(seen), err)
		}
	}
}

func TestRest(t *testing.T) {
	for _, c := range []struct {
		distribution string
		part         float64
		lo, hi       float64
	}{{"uniform", 0.25, 0.75, 0.75}, {"zipf", 0.01, 0.17, 0.19}, {"zipf", 1, 0, 0}, {"hot", 0.1, 0, 0}, {"zipf", 0.5, 0.001, 0.1}} {
		if got := rest(c.distribution, 1e6, c.part); got < c.lo || got > c.hi {
			t.Errorf("%s, %.2f of the keys in memory: %.3f of the draws miss, want %.3f to %.3f", c.distribution, c.part, got, c.lo, c.hi)
		}
	}
}

func TestNeedGrowsWithTheLoad(t *testing.T) {
	c := Constants{Base: 1, Single: 5, Rule: 0.5, Flush: 2, Load: 4, Forward: 3, RedisFlush: 4, RedisLoad: 6, FlushBytes: 100, LoadBytes: 50,
		Sizes: []Size{{1, 100, 200}, {30, 500, 600}}, Overhead: 2}
	m := Machine{Cores: 4, Memory: 16 << 30, RedisMemory: 16 << 30, Use: 0.5}
	l := Load{Rate: 1e5, Batched: true, Keys: 1e7, PerDecision: 1, Rules: 2, Distribution: "uniform", Flush: 0.2, New: 0}
	one, err := c.need(l, m)
	if err != nil {
		t.Fatal(err)
	}
	// Nearly all keys of an interval differ: each decision is flushed, none loaded, none forwarded by a single node.
	if math.Abs(one.ServiceCores-0.3) > 0.01 || one.Fewest != 1 || math.Abs(one.RedisCores-0.4) > 0.01 || one.Loaded != 0 || one.Created != 0 {
		t.Errorf("%+v", one)
	}
	l.Rate *= 100
	many, err := c.need(l, m)
	if err != nil {
		t.Fatal(err)
	}
	if used := many.ServiceCores / float64(many.Fewest) / m.Cores; used > m.Use || many.Fewest < 10 || many.Shards < many.Fewest {
		t.Errorf("%+v uses %.2f of its nodes", many, used)
	}
	if small := (Machine{Cores: 4, Memory: 1 << 28, RedisMemory: 16 << 30, Use: 0.5}); true {
		less, err := c.need(l, small)
		if err != nil || less.Loaded <= 0 || less.Fewest <= many.Fewest || less.Nodes < many.Nodes {
			t.Errorf("with little memory %+v, %v", less, err)
		}
	}
	l.Batched, l.Rules = false, 4
	if slow, _ := c.need(l, m); slow.ServiceCores < many.ServiceCores+l.Rate*6/1e6 {
		t.Errorf("%+v", slow)
	}
}
