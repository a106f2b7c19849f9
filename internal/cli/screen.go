package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/term"
)

// The sequences that open and close a screen: switch to the alternate screen, hide the cursor and
// cut long lines; and undo all of that.
const (
	takeScreen = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	giveScreen = "\x1b[?7h\x1b[?25h\x1b[?1049l"
)

// Control keys, which a terminal in raw mode sends as bytes.
const (
	ctrlC = 0x03
	ctrlD = 0x04
)

// screen is a whole terminal: its display, and the keys that are pressed.
type screen struct {
	in, out *os.File
	before  *term.State
}

// terminals returns the files of the command's terminal, for reading and for writing. ok is false
// if it has none.
func (o IO) terminals() (in, out *os.File, ok bool) {
	in, okIn := o.Stdin.(*os.File)
	out, okOut := o.Stdout.(*os.File)
	return in, out, okIn && okOut && o.getenv("TERM") != "dumb" &&
		term.IsTerminal(int(in.Fd())) && term.IsTerminal(int(out.Fd()))
}

// openScreen takes over the terminal until close.
func openScreen(in, out *os.File) (*screen, error) {
	before, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return nil, fmt.Errorf("terminal: %w", err)
	}
	s := &screen{in: in, out: out, before: before}
	if _, err := out.WriteString(takeScreen); err != nil {
		return nil, errors.Join(err, term.Restore(int(in.Fd()), before))
	}
	return s, nil
}

// close restores the terminal.
func (s *screen) close() error {
	_, err := s.out.WriteString(giveScreen)
	return errors.Join(err, term.Restore(int(s.in.Fd()), s.before))
}

// size returns the width in characters and the height in lines.
func (s *screen) size() (width, height int) {
	width, height, err := term.GetSize(int(s.out.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		return 80, 24
	}
	return width, height
}

// draw replaces the picture by lines, each of which the terminal cuts at its edge.
func (s *screen) draw(lines []string) error {
	var out strings.Builder
	out.WriteString("\x1b[H")
	for i, line := range lines {
		if i > 0 {
			out.WriteString("\r\n")
		}
		out.WriteString(line + "\x1b[K")
	}
	out.WriteString("\x1b[J")
	_, err := s.out.WriteString(out.String())
	return err
}

// runKeys sends the keys that are pressed until ctx is done or the terminal is gone. A read from a
// terminal can't be interrupted, so no code waits for runKeys to return: it ends with the next key,
// or with the process.
func (s *screen) runKeys(ctx context.Context, keys chan<- byte) {
	buf := make([]byte, 16)
	for {
		n, err := s.in.Read(buf)
		if err != nil {
			buf[0], n = ctrlD, 1
		}
		for _, key := range withoutSequences(buf[:n]) {
			select {
			case keys <- key:
			case <-ctx.Done():
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// withoutSequences removes the escape sequences of arrows and similar keys, none of which has a
// meaning here: an escape, a bracket or an O, and everything up to a letter or a tilde.
func withoutSequences(b []byte) (keys []byte) {
	for i := 0; i < len(b); i++ {
		if b[i] != 0x1b {
			keys = append(keys, b[i])
			continue
		}
		if i++; i < len(b) && (b[i] == '[' || b[i] == 'O') {
			for i++; i < len(b) && b[i] < '@'; i++ {
			}
		}
	}
	return keys
}
