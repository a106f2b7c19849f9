package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/internal/certs"
	"twotier.dev/twotier/internal/cli"
	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/internal/peer"
	"twotier.dev/twotier/internal/reload"
	"twotier.dev/twotier/internal/token"
)

// addTokens adds the tokens of the configuration to web, if there are any. It logs a warning if
// there are none and --insecure is set.
func (s *server) addTokens(web *httpapi.Options) error {
	web.Hosts, web.AdminToken = s.cfg.AllHosts(), s.cfg.AdminToken
	if s.cfg.Tokens == "" {
		if s.cfg.Insecure {
			s.log.Warn("--insecure: whoever can connect may count, read and reset", "listen",
				s.cfg.Listen)
		}
		return nil
	}
	store := new(token.Store)
	web.Tokens = store
	return s.files.Add(reload.Source{Name: "--tokens", Paths: []string{s.cfg.Tokens},
		Withdrawn: true, Apply: func(contents [][]byte) error {
			return store.Load(contents[0])
		}})
}

// addTLS turns TLS on in web if a certificate is configured.
func (s *server) addTLS(web *httpapi.Options) error {
	if s.cfg.TLSCert == "" {
		return nil
	}
	s.certs = new(certs.Store)
	web.TLS = s.certs.Server()
	paths := []string{s.cfg.TLSCert, s.cfg.TLSKey}
	if s.cfg.TLSClientCA != "" {
		paths = append(paths, s.cfg.TLSClientCA)
	}
	return s.files.Add(reload.Source{Name: "--tls-cert", Paths: paths,
		Apply: func(contents [][]byte) error {
			var authorities []byte
			if len(contents) > 2 {
				authorities = contents[2]
			}
			if err := s.certs.Load(contents[0], contents[1], authorities); err != nil {
				return err
			}
			if end := s.certs.NotAfter(); time.Now().After(end) {
				s.log.Warn("--tls-cert: the certificate has expired: nobody will connect who "+
					"looks at it", "not_after", end)
			}
			return nil
		}})
}

// addSecrets passes the secrets in the file, if one is configured, to all parts that talk to other
// nodes, now and whenever the file changes.
func (s *server) addSecrets(messages *peer.Server) error {
	if s.cfg.ClusterSecretFile == "" {
		return nil
	}
	return s.files.Add(reload.Source{Name: "--cluster-secret-file",
		Paths: []string{s.cfg.ClusterSecretFile}, Apply: func(contents [][]byte) error {
			secrets, err := config.ParseSecrets(contents[0])
			if err != nil {
				return err
			}
			// Receive with a new secret before sending with it: first the server that opens
			// messages, then the clients that seal them.
			messages.SetSecrets(secrets)
			s.peers.SetSecrets(secrets)
			return s.ring.SetSecrets(secrets)
		}})
}

const tokenText = `Prints the line for the file on stdout, and on stderr the token itself, which is
not stored anywhere. It has 256 random bits, and the file only has its SHA-256. A
server reads the file again when it changes, so removing a line withdraws a
token.`

const tokenExamples = `twotier token checkout --namespaces default,login >> tokens.conf
twotier token prometheus --roles read >> tokens.conf
twotier serve --listen :8080 --tokens tokens.conf
TWOTIER_TOKEN=tt_... twotier add alice
echo -n tt_... | sha256sum        # the hash, without this command`

func tokenCommand(o cli.IO) *cobra.Command {
	cmd := &cobra.Command{
		Use: "token NAME [--roles count,read] [--namespaces NS,...]", Long: tokenText,
		Short: "make a token, and its line for --tokens", Example: tokenExamples,
	}
	fs := cmd.Flags()
	roles := fs.String("roles", "count,read", "what it may do, a list of `ROLES`: count "+
		"(add, acquire, distinct), read (count, series, top, cluster, metrics), "+
		"admin (reset, unban, mode, rules, profiles)")
	namespaces := fs.String("namespaces", "*", "for which `NAMESPACES`; * for all")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		line, text, err := newToken(args, *roles, *namespaces)
		if err != nil {
			return &cli.UsageError{Err: err}
		}
		if _, err := fmt.Fprintln(o.Stdout, line); err != nil {
			return err
		}
		_, err = fmt.Fprintf(o.Stderr, "the token, shown once: %s\n", text)
		return err
	}
	return cmd
}

// newToken makes a token named by the only argument. It returns the line for the file and the
// token's text.
func newToken(args []string, roles, namespaces string) (line, text string, err error) {
	if len(args) != 1 {
		return "", "", errors.New("want one NAME")
	}
	if err := config.CheckName(args[0]); err != nil {
		return "", "", err
	}
	granted, err := twotier.ParseRoles(roles)
	if err != nil {
		return "", "", fmt.Errorf("--roles: %w", err)
	}
	text, hash := token.New()
	if line, err = token.FormatLine(args[0], hash, granted, namespaces); err != nil {
		return "", "", fmt.Errorf("--namespaces: %w", err)
	}
	return line, text, nil
}
