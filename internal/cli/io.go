package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// ErrRefused is returned by acquire and distinct if limits refused. The answer has been printed.
var ErrRefused = errors.New("refused")

// UsageError is a mistake on the command line.
type UsageError struct{ Err error }

// Error returns the mistake without the usage.
func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the wrapped error.
func (e *UsageError) Unwrap() error { return e.Err }

// IO is a command's access to its process.
type IO struct {
	// Environ is NAME=value as in [os.Environ]; commands read the TWOTIER_* variables named in the
	// help, COLUMNS, NO_COLOR and TERM.
	Environ        []string
	Stdout, Stderr io.Writer
}

// getenv returns the value of a variable, or "".
func (o IO) getenv(name string) (found string) {
	for _, entry := range o.Environ {
		if n, v, _ := strings.Cut(entry, "="); n == name {
			found = v
		}
	}
	return found
}

// usesColour reports whether to colour the output: it must go to a terminal that is not dumb, and
// NO_COLOR must not be set.
func (o IO) usesColour() bool { return o.getenv("NO_COLOR") == "" && o.isTerminal(o.Stdout) }

// isTerminal reports whether an output goes to a terminal that is not dumb.
func (o IO) isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok || o.getenv("TERM") == "dumb" {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// width returns the width of the output in characters.
func (o IO) width() int {
	n, err := strconv.Atoi(o.getenv("COLUMNS"))
	if err != nil {
		return 80
	}
	return min(max(n, 40), 240)
}

func usagef(format string, args ...any) error {
	return &UsageError{Err: fmt.Errorf(format, args...)}
}

// OneKey returns the key, which must be the only argument.
func OneKey(args []string) (string, error) {
	switch {
	case len(args) == 0:
		return "", usagef("the KEY is missing")
	case len(args) > 1:
		return "", usagef("one KEY is enough, and %q is one more (quote keys with spaces)", args[1])
	case args[0] == "":
		return "", usagef("the KEY is empty")
	}
	return args[0], nil
}

// RefuseArgs refuses non-flag arguments. It implements [cobra.PositionalArgs].
func RefuseArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("unexpected argument %q", args[0])
	}
	return nil
}
