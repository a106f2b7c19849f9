package main

import (
	"errors"
	"fmt"
	"net"

	"github.com/coreos/go-systemd/v22/activation"

	"twotier.dev/twotier/internal/config"
)

// inheritListener returns the listener for the HTTP API that a supervisor has opened for this
// process (LISTEN_FDS, as systemd with a .socket unit), or nil if there is none. It also returns
// the settings with the listener's address in place of --listen, so that rules about addresses
// apply to an inherited one.
func inheritListener(cfg config.Config) (net.Listener, config.Config, error) {
	all, err := activation.Listeners()
	if err != nil || len(all) == 0 {
		return nil, cfg, err
	}
	tcp, ok := all[0].(*net.TCPListener)
	if len(all) > 1 || !ok {
		return nil, cfg, errors.New("LISTEN_FDS: want one socket, which listens for TCP " +
			"(ListenStream=8080); it takes the place of --listen")
	}
	cfg, err = cfg.ListeningOn(tcp.Addr().String())
	if err != nil {
		err = fmt.Errorf("a socket was inherited (LISTEN_FDS): %w", errors.Join(err, tcp.Close()))
	}
	return tcp, cfg, err
}
