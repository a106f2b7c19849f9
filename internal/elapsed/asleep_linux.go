package elapsed

import (
	"time"

	"golang.org/x/sys/unix"
)

// Asleep returns the total time for which the machine has been suspended since it booted: the
// difference between CLOCK_BOOTTIME, which includes suspension, and CLOCK_MONOTONIC, which does
// not. It is off by the time between reading the two. If a clock can't be read, it is 0.
func Asleep() time.Duration {
	var boot, mono unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &mono) != nil ||
		unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) != nil {
		return 0
	}
	return time.Duration(boot.Nano() - mono.Nano())
}
