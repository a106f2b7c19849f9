package resp

import (
	"fmt"
	"strings"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/request"
)

// session is the state that a connection keeps between commands.
type session struct {
	id        int64
	proto     version
	name      string
	presented []byte         // the token; nil if there is none
	grant     *twotier.Grant // the token's grant; nil if there is none
}

// compatible is the version of Redis whose connection commands these are. Clients that check it
// assume no command that is missing here.
const compatible = "7.0.0"

// authenticated reports whether the connection may send commands that need authentication.
func (c *conn) authenticated() bool {
	return !c.server.access.HasTokens() || c.session.grant != nil
}

// refreshGrant looks up the token again: it may have been withdrawn, or its grant may have changed.
func (c *conn) refreshGrant() {
	if c.session.presented == nil {
		return
	}
	if c.session.grant = c.server.access.Find(c.session.presented); c.session.grant == nil {
		c.session.presented = nil
	}
}

// login authenticates the connection. user is empty, "default" or the name of the token.
func (c *conn) login(user, password []byte) errorReply {
	g := c.server.access.Find(password)
	switch {
	case g == nil && !c.server.access.HasTokens():
		return errorf(codeErr, "AUTH <token> called on a node that has no tokens: "+
			"everybody may do everything here")
	case g == nil || len(user) > 0 && string(user) != "default" && string(user) != g.Name():
		return errorf(codeWrongPass, "invalid token, or a user that is neither its name nor "+
			"\"default\"")
	}
	c.session.presented, c.session.grant = append([]byte(nil), password...), g
	return ""
}

// executeAuth executes AUTH [user] token.
func (c *conn) executeAuth(args [][]byte) errorReply {
	user := []byte(nil)
	switch len(args) {
	case 2:
	case 3:
		user = args[1]
	default:
		return wrongArguments("auth")
	}
	e := c.login(user, args[len(args)-1])
	if e == "" {
		c.appendReply(appendSimple, "OK")
	}
	return e
}

// executeHello executes HELLO [protover [AUTH user token] [SETNAME name]].
func (c *conn) executeHello(args [][]byte) errorReply {
	h := helloArgs{proto: c.session.proto}
	if e := h.parse(args[1:]); e != "" {
		return e
	}
	if h.auth {
		if e := c.login(h.user, h.password); e != "" {
			return e
		}
	}
	if !c.authenticated() {
		return errorf(codeNoAuth, "HELLO must be called with the client already authenticated, "+
			"otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate "+
			"the client and select the RESP protocol version at the same time")
	}
	if h.named {
		c.session.name = h.name
	}
	c.session.proto = h.proto
	c.replyHello()
	return ""
}

// helloArgs holds the arguments of HELLO.
type helloArgs struct {
	proto          version
	auth, named    bool
	user, password []byte
	name           string
}

func (h *helloArgs) parse(args [][]byte) errorReply {
	if len(args) == 0 {
		return ""
	}
	v, ok := parseInteger(args[0])
	if !ok || v != int64(resp2) && v != int64(resp3) {
		return errorf(codeNoProto, "unsupported protocol version")
	}
	h.proto = version(v)
	for args = args[1:]; len(args) > 0; {
		switch word := strings.ToUpper(string(args[0])); {
		case word == "AUTH" && len(args) >= 3:
			h.auth, h.user, h.password, args = true, args[1], args[2], args[3:]
		case word == "SETNAME" && len(args) >= 2:
			if !isPlainName(args[1]) {
				return nameError()
			}
			h.named, h.name, args = true, string(args[1]), args[2:]
		default:
			return errorf(codeErr, "Syntax error in HELLO option '%s'", request.Clip(args[0]))
		}
	}
	return ""
}

// replyHello answers HELLO.
func (c *conn) replyHello() {
	b := c.session.proto.appendMap(c.work.out, 7)
	for _, pair := range [][2]string{{"server", "twotier"}, {"version", compatible}} {
		b = appendBulk(appendBulk(b, pair[0]), pair[1])
	}
	b = appendInt(appendBulk(b, "proto"), int64(c.session.proto))
	b = appendInt(appendBulk(b, "id"), c.session.id)
	for _, pair := range [][2]string{{"mode", "standalone"}, {"role", "master"}} {
		b = appendBulk(appendBulk(b, pair[0]), pair[1])
	}
	c.work.out = appendArray(appendBulk(b, "modules"), 0)
}

// resetSession executes RESET.
func (c *conn) resetSession() {
	c.dropTransaction()
	c.session = session{id: c.session.id, proto: resp2}
	c.appendReply(appendSimple, "RESET")
}

// maxName bounds the name of a connection, in bytes.
const maxName = 256

// isPlainName reports whether a connection may have that name, which appears in a space-separated
// list.
func isPlainName(name []byte) bool {
	for _, c := range name {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return len(name) <= maxName
}

func nameError() errorReply {
	return errorf(codeErr, "Client names cannot contain spaces, newlines or special characters, "+
		"and have at most %d of them", maxName)
}

// executeClient executes the parts of CLIENT that concern only this connection.
func (c *conn) executeClient(args [][]byte) errorReply {
	sub := strings.ToUpper(string(args[1]))
	switch {
	case sub == "SETNAME" && len(args) == 3:
		if !isPlainName(args[2]) {
			return nameError()
		}
		c.session.name = string(args[2])
		c.appendReply(appendSimple, "OK")
	case sub == "GETNAME" && len(args) == 2:
		if c.session.name == "" {
			c.work.out = c.session.proto.appendNull(c.work.out)
		} else {
			c.appendReply(appendBulk, c.session.name)
		}
	case sub == "ID" && len(args) == 2:
		c.work.out = appendInt(c.work.out, c.session.id)
	case (sub == "INFO" || sub == "LIST") && len(args) == 2:
		c.appendReply(appendBulk, c.clientInfo())
	case sub == "SETINFO" && len(args) == 4, // of no use here, but every client sends it
		sub == "REPLY" && len(args) == 3 && strings.EqualFold(string(args[2]), "ON"),
		(sub == "NO-EVICT" || sub == "NO-TOUCH") && len(args) == 3:
		c.appendReply(appendSimple, "OK")
	default:
		return errorf(codeErr, "unknown subcommand or wrong number of arguments for 'CLIENT %s'",
			request.Clip(args[1]))
	}
	return ""
}

// clientInfo returns the line of CLIENT INFO.
func (c *conn) clientInfo() string {
	user := "default"
	if g := c.session.grant; g != nil {
		user = g.Name()
	}
	return fmt.Sprintf("id=%d addr=%s laddr=%s name=%s age=%d user=%s resp=%d\n", c.session.id,
		c.RemoteAddr(), c.LocalAddr(), c.session.name, int(time.Since(c.began).Seconds()), user,
		c.session.proto)
}
