package resp

import (
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"twotier.dev/twotier/internal/metrics"
)

// tally counts a run of equal commands, so that a pipeline touches the shared counter once.
type tally struct {
	of command
	n  int64
}

// countCommand counts a command.
func (c *conn) countCommand(id command) {
	if id != c.tally.of {
		c.flushTally()
		c.tally.of = id
	}
	c.tally.n++
}

func (c *conn) flushTally() {
	if c.tally.n > 0 {
		c.server.counters.commands[c.tally.of].Add(c.tally.n)
		c.tally.n = 0
	}
}

// counters are the values of the metrics.
type counters struct {
	commands [commandCount]atomic.Int64
	errors   []atomic.Int64 // in the order of codes
}

// countError counts an error by its code.
func (s *Server) countError(e errorReply) {
	if e == errNoMemory {
		s.CountLimited()
	}
	code, _, _ := strings.Cut(string(e), " ")
	for i, name := range errorCodes() {
		if name == code {
			s.counters.errors[i].Add(1)
		}
	}
}

// Collect implements [prometheus.Collector].
func (s *Server) Collect(ch chan<- prometheus.Metric) {
	to := metrics.Sink(ch)
	commands := to.Totals("twotier_resp_commands_total", "Redis commands received, by name.",
		"command")
	for i := range s.counters.commands {
		if n := s.counters.commands[i].Load(); n > 0 {
			commands(n, s.commands[i].name)
		}
	}
	failures := to.Totals("twotier_resp_errors_total",
		"Redis commands answered with an error, by code.", "code")
	for i, code := range errorCodes() {
		if n := s.counters.errors[i].Load(); n > 0 {
			failures(n, code)
		}
	}
	to.Gauge("twotier_resp_connections", "Open connections of Redis clients.",
		int64(s.conns.InUse()))
	to.Total("twotier_resp_rejected_total",
		"Connections of Redis clients turned away because there were too many.", s.Rejected())
	to.Gauge("twotier_resp_memory_bytes",
		"Memory taken for queueing, executing and answering Redis commands.",
		s.conns.Held(answers))
}
