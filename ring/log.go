package ring

import (
	"bytes"
	"context"
	"log"
	"log/slog"
)

// newLog returns a logger for memberlist that writes to ours. An error in memberlist's log is one
// lost message, which memberlist is built to handle. So everything is logged at the lowest level;
// the ring itself logs changes of state.
func newLog(to *slog.Logger) *log.Logger { return log.New(logWriter{to}, "", 0) }

type logWriter struct{ to *slog.Logger }

// Write logs one line.
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
