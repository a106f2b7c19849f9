package resp

import (
	"fmt"
	"path"
	"strings"
	"time"

	"twotier.dev/twotier/internal/fields"
	"twotier.dev/twotier/internal/request"
)

// command is an index into the table of commands.
type command uint8

const (
	cmdUnknown command = iota
	cmdAcquire
	cmdAdd
	cmdCount
	cmdSeries
	cmdTop
	cmdForget
	cmdDistinct
	cmdSettle
	cmdRelease
	cmdRenew
	cmdExplain
	cmdThrottle
	cmdHello
	cmdAuth
	cmdPing
	cmdEcho
	cmdClient
	cmdCommand
	cmdSelect
	cmdInfo
	cmdConfig
	cmdQuit
	cmdReset
	cmdMulti
	cmdExec
	cmdDiscard
	cmdWatch
	cmdUnwatch
	commandCount
)

// description is a command's entry in the reply to COMMAND.
type description struct {
	name string
	// arity is the number of words with the name; -n means n or more.
	arity int
	flags string // separated by spaces
	key   bool   // the first argument is a key
}

// descriptions returns the table of commands, by command.
func descriptions() [commandCount]description {
	return [commandCount]description{
		cmdUnknown:  {name: "unknown"},
		cmdAcquire:  {"tt.acquire", -2, "write fast", true},
		cmdAdd:      {"tt.add", -2, "write fast", true},
		cmdCount:    {"tt.count", -3, "readonly fast", true},
		cmdSeries:   {"tt.series", -3, "readonly", true},
		cmdTop:      {"tt.top", -1, "readonly", false},
		cmdForget:   {"tt.reset", -2, "write", true},
		cmdDistinct: {"tt.distinct", -4, "write fast", true},
		cmdSettle:   {"tt.settle", 3, "write fast", false},
		cmdRelease:  {"tt.release", 2, "write fast", false},
		cmdRenew:    {"tt.renew", 3, "write fast", false},
		cmdExplain:  {"tt.explain", -2, "readonly", true},
		cmdThrottle: {"cl.throttle", -5, "write fast", true},
		cmdHello:    {"hello", -1, "fast no_auth", false},
		cmdAuth:     {"auth", -2, "fast no_auth", false},
		cmdPing:     {"ping", -1, "fast", false},
		cmdEcho:     {"echo", 2, "fast", false},
		cmdClient:   {"client", -2, "", false},
		cmdCommand:  {"command", -1, "", false},
		cmdSelect:   {"select", 2, "fast", false},
		cmdInfo:     {"info", -1, "", false},
		cmdConfig:   {"config", -2, "", false},
		cmdQuit:     {"quit", -1, "fast no_auth", false},
		cmdReset:    {"reset", 1, "fast no_auth", false},
		cmdMulti:    {"multi", 1, "fast", false},
		cmdExec:     {"exec", 1, "", false},
		cmdDiscard:  {"discard", 1, "fast", false},
		cmdWatch:    {"watch", -2, "fast", true},
		cmdUnwatch:  {"unwatch", 1, "fast", false},
	}
}

// byName returns the commands by their names in capital letters.
func byName(table *[commandCount]description) map[string]command {
	names := map[string]command{}
	for id := cmdUnknown + 1; id < commandCount; id++ {
		names[strings.ToUpper(table[id].name)] = id
	}
	return names
}

// commandOf returns the command of that name, in any case. The names that matter most need no map.
func (s *Server) commandOf(name []byte) command {
	var b [len("CL.THROTTLE")]byte
	if len(name) > len(b) {
		return cmdUnknown
	}
	text := upper(b[:0], name)
	switch string(text) {
	case "TT.ACQUIRE":
		return cmdAcquire
	case "TT.ADD":
		return cmdAdd
	case "TT.COUNT":
		return cmdCount
	}
	return s.names[string(text)]
}

// accepts reports whether the command may have this number of words, with its name.
func (d *description) accepts(words int) bool {
	return words == d.arity || d.arity < 0 && words >= -d.arity
}

// wrongArguments returns the error for a command with too few or too many arguments.
func wrongArguments(name string) errorReply {
	return errorf(codeErr, "wrong number of arguments for '%s' command", name)
}

// appendInfo appends the command's entry in the reply to COMMAND.
func (d *description) appendInfo(b []byte) []byte {
	flags := strings.Fields(d.flags)
	first := boolInt(d.key)
	b = appendArray(b, 10)
	b = appendBulk(b, d.name)
	b = appendInt(b, int64(d.arity))
	b = appendArray(b, len(flags))
	for _, f := range flags {
		b = appendSimple(b, f)
	}
	for range 3 { // the first key, the last, and the step between keys
		b = appendInt(b, first)
	}
	for range 4 { // categories, tips, key specifications, subcommands
		b = appendArray(b, 0)
	}
	return b
}

// describeCommands executes COMMAND [COUNT | INFO [name ...]].
func (c *conn) describeCommands(args [][]byte) errorReply {
	sub := ""
	if len(args) > 1 {
		sub = strings.ToUpper(string(args[1]))
	}
	table := c.server.commands[1:]
	b := c.work.out
	switch {
	case sub == "COUNT" && len(args) == 2:
		b = appendInt(b, int64(len(table)))
	case sub == "" || sub == "INFO" && len(args) == 2:
		b = appendArray(b, len(table))
		for i := range table {
			b = table[i].appendInfo(b)
		}
	case sub == "INFO":
		b = c.appendInfoOf(b, args[2:])
	default:
		return errorf(codeErr, "unknown subcommand or wrong number of arguments for 'COMMAND %s'",
			request.Clip(args[1]))
	}
	c.work.out = b
	return ""
}

// appendInfoOf appends the info of the named commands, and null for unknown names.
func (c *conn) appendInfoOf(b []byte, names [][]byte) []byte {
	b = appendArray(b, len(names))
	for _, name := range names {
		if id := c.server.commandOf(name); id != cmdUnknown {
			b = c.server.commands[id].appendInfo(b)
		} else if c.session.proto == resp3 {
			b = append(b, "_\r\n"...)
		} else {
			b = append(b, "*-1\r\n"...)
		}
	}
	return b
}

// executeInfo executes INFO: its fields suffice for clients that wait until a server has loaded its
// data.
func (c *conn) executeInfo() {
	s := c.server
	c.appendReply(appendBulk, fmt.Sprintf("# Server\r\nredis_version:%s\r\n"+
		"redis_mode:standalone\r\n"+
		"server_name:twotier\r\ntwotier_version:%s\r\nuptime_in_seconds:%d\r\n"+
		"\r\n# Clients\r\nconnected_clients:%d\r\nmaxclients:%d\r\n"+
		"\r\n# Persistence\r\nloading:0\r\n\r\n# Replication\r\nrole:master\r\n",
		compatible, s.opts.Version, int(time.Since(s.began).Seconds()), s.conns.InUse(),
		s.opts.MaxConns))
}

// executeConfig executes CONFIG GET pattern [pattern ...]. There is no such configuration here, but
// redis-benchmark asks for these two parameters before it begins.
func (c *conn) executeConfig(args [][]byte) errorReply {
	if len(args) < 3 || !strings.EqualFold(string(args[1]), "GET") {
		return errorf(codeErr, "unknown subcommand or wrong number of arguments for 'CONFIG %s'; "+
			"twotier serve --print-config shows the settings", request.Clip(args[1]))
	}
	var found [][2]string
	for _, pair := range [][2]string{{"save", ""}, {"appendonly", "no"}} {
		for _, pattern := range args[2:] {
			if ok, err := path.Match(strings.ToLower(string(pattern)), pair[0]); ok && err == nil {
				found = append(found, pair)
				break
			}
		}
	}
	b := c.session.proto.appendMap(c.work.out, len(found))
	for _, pair := range found {
		b = appendBulk(appendBulk(b, pair[0]), pair[1])
	}
	c.work.out = b
	return ""
}

// optionOf returns the field with the option of that name, in any case, or 0.
func optionOf(word []byte) fields.Set {
	var b [16]byte // longer than any option
	if len(word) > len(b) {
		return 0
	}
	return fields.Worded(upper(b[:0], word))
}

// upper appends word in capital letters.
func upper(b, word []byte) []byte {
	for _, c := range word {
		if 'a' <= c && c <= 'z' {
			c -= 'a' - 'A'
		}
		b = append(b, c)
	}
	return b
}
