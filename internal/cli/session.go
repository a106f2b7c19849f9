package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"time"
)

// session is one run of a command.
type session struct {
	IO
	client *caller
	json   bool
}

// call calls the server, prints its answer if --json is set, and decodes it into answer.
func (s *session) call(ctx context.Context, method, path string, query url.Values, body,
	answer any) error {
	raw, err := s.client.do(ctx, method, path, query, body)
	if err := s.printRaw(raw, err); err != nil {
		return err
	}
	return s.decode(raw, answer)
}

// printRaw prints an answer if --json is set, including problems. It returns err.
func (s *session) printRaw(raw []byte, err error) error {
	_, isProblem := errors.AsType[*Problem](err)
	if s.json && (err == nil || isProblem) {
		if err := s.printf("%s\n", bytes.TrimRight(raw, "\n")); err != nil {
			return err
		}
	}
	return err
}

// decode decodes an answer.
func (s *session) decode(raw []byte, answer any) error {
	if err := json.Unmarshal(raw, answer); err != nil {
		return fmt.Errorf("%s did not answer with JSON; is that a twotier server? (%w)",
			s.client.address(), err)
	}
	return nil
}

// printf prints to stdout.
func (s *session) printf(format string, args ...any) error {
	_, err := fmt.Fprintf(s.Stdout, format, args...)
	return err
}

// watchPause is the time between two refreshes.
const watchPause = time.Second

// watch calls show once or, if it goes on, every second until ctx is done, and prints its output.
// On a terminal each output then replaces the previous one. It prints errors, too, and carries on,
// because they may be temporary.
func (s *session) watch(ctx context.Context, goesOn bool,
	show func(ctx context.Context, query url.Values) error, query url.Values) error {
	if !goesOn {
		return show(ctx, query)
	}
	screen := s.Stdout
	ticker := time.NewTicker(watchPause)
	defer ticker.Stop()
	for {
		var picture bytes.Buffer
		s.Stdout = &picture
		err := show(ctx, query)
		s.Stdout = screen
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			fmt.Fprintf(&picture, "%v\n", err)
		}
		home, gap := "", "\n"
		if s.usesColour() {
			home, gap = "\x1b[H\x1b[2J", ""
		}
		if _, err := io.WriteString(screen, home+picture.String()+gap); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
