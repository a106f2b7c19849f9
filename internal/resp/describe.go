package resp

import (
	"fmt"
	"path"
	"strings"
	"time"

	"twotier.dev/twotier/internal/fields"
	"twotier.dev/twotier/internal/request"
)

// describeCommands executes COMMAND [COUNT | LIST | INFO [name ...] | DOCS [name ...]].
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
	case sub == "LIST" && len(args) == 2:
		b = appendArray(b, len(table))
		for i := range table {
			b = appendBulk(b, table[i].name)
		}
	case sub == "" || sub == "INFO" && len(args) == 2:
		b = appendArray(b, len(table))
		for i := range table {
			b = table[i].appendInfo(b)
		}
	case sub == "INFO":
		b = c.appendInfoOf(b, args[2:])
	case sub == "DOCS":
		b = c.appendDocsOf(b, args[2:])
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

// appendDocsOf appends the docs of the named commands, skipping unknown names, or of all commands
// if there are no names.
func (c *conn) appendDocsOf(b []byte, names [][]byte) []byte {
	var ids []command
	for _, name := range names {
		if id := c.server.commandOf(name); id != cmdUnknown {
			ids = append(ids, id)
		}
	}
	for id := cmdUnknown + 1; len(names) == 0 && id < commandCount; id++ {
		ids = append(ids, id)
	}
	b = c.session.proto.appendMap(b, len(ids))
	for _, id := range ids {
		b = c.server.commands[id].appendDocs(b, c.session.proto)
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
