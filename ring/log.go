package ring

import (
	"bytes"
	"context"
	"log"
	"log/slog"
)

// newLog returns a logger for memberlist that writes to ours. What it calls an error is one message
// that got lost, which it is made to cope with: only changes of state, which the ring logs itself,
// are worth more than the lowest level.
func newLog(to *slog.Logger) *log.Logger { return log.New(logWriter{to}, "", 0) }

type logWriter struct{ to *slog.Logger }

// Write takes one line.
func (w logWriter) Write(line []byte) (int, error) {
	text := bytes.TrimSpace(line)
	level := slog.LevelDebug
	if bytes.HasPrefix(text, []byte("[ERR]")) || bytes.HasPrefix(text, []byte("[WARN]")) {
		level = slog.LevelDebug + 1
	}
	if _, rest, ok := bytes.Cut(text, []byte("] memberlist: ")); ok {
		text = rest
	}
	w.to.Log(context.Background(), level, "gossip: "+string(text))
	return len(line), nil
}
