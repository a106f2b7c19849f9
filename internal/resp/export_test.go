package resp

import (
	"strings"

	"twotier.dev/twotier"
)

// MaxArgs bounds the arguments of a command.
const MaxArgs = maxArgs

// Commands parses pieces that arrive one after the other and returns their commands, up to the
// first input that is not RESP.
func Commands(pieces ...[]byte) (commands [][][]byte, err error) {
	in := input{buf: make([]byte, largeInput)}
	for _, piece := range pieces {
		for len(piece) > 0 {
			in.compact()
			n := copy(in.freeSpace(), piece)
			in.end, piece = in.end+n, piece[n:]
			for {
				ok, err := in.nextCommand()
				if err != nil {
					return commands, err
				}
				if !ok {
					break
				}
				var args [][]byte
				for _, arg := range in.args {
					args = append(args, append([]byte{}, arg...))
				}
				commands = append(commands, args)
			}
		}
	}
	return commands, nil
}

// Operations parses the arguments as those of each command that counts or reads, and returns the
// resulting operations: one per command, or none where the arguments are refused.
func Operations(args [][]byte) (ops []twotier.Op) {
	words := append([][]byte{[]byte("TT")}, args...)
	for _, kind := range []twotier.Kind{twotier.Add, twotier.Count, twotier.Acquire} {
		var w work
		if w.parse(kind, false, words) == "" {
			w.Link()
			ops = append(ops, w.Ops...)
		}
	}
	var w work
	if w.parseThrottle(words) == "" {
		w.Link()
		ops = append(ops, w.Ops...)
	}
	return ops
}

// Names returns the names of all commands.
func Names() (names []string) {
	for _, d := range descriptions() {
		if d.name != "unknown" {
			names = append(names, strings.ToUpper(d.name))
		}
	}
	return names
}
