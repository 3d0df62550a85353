;; What is added to the engine, in its own small module beside it: one coarse entry per turn, so that the host crosses
;; into WebAssembly a handful of times however many jobs a turn runs; the interrupt handler, so that a program that
;; computes past its time is stopped by the engine itself with its state intact; the rejection tracker; the module
;; loader, which loads nothing; and the natives, functions that would be slow in JavaScript.
;; JSValues are 64 bits (NaN boxing), tag in the upper half: 2 null, 3 undefined, 6 exception.
(module
  (import "engine" "memory" (memory $memory 0))
  (import "engine" "table" (table 0 funcref))
  (import "engine" "JS_NewStringLen" (func $JS_NewStringLen (param i32 i32 i32) (result i64)))
  (import "engine" "JS_Call" (func $JS_Call (param i32 i64 i64 i32 i32) (result i64)))
  (import "engine" "JS_FreeValue" (func $JS_FreeValue (param i32 i64)))
  (import "engine" "JS_ExecutePendingJob" (func $JS_ExecutePendingJob (param i32 i32) (result i32)))
  (import "engine" "JS_GetException" (func $JS_GetException (param i32) (result i64)))
  (import "engine" "JS_ToCStringLen2" (func $JS_ToCStringLen2 (param i32 i32 i64 i32) (result i32)))
  (import "engine" "JS_FreeCString" (func $JS_FreeCString (param i32 i32)))
  (import "engine" "JS_Throw" (func $JS_Throw (param i32 i64) (result i64)))
  (import "engine" "JS_NewNumber" (func $JS_NewNumber (param i32 f64) (result i64)))
  (import "engine" "JS_ToInt32" (func $JS_ToInt32 (param i32 i32 i64) (result i32)))
  (import "engine" "JS_ToBool" (func $JS_ToBool (param i32 i64) (result i32)))
  (import "engine" "JS_GetUint8Array" (func $JS_GetUint8Array (param i32 i32 i64) (result i32)))
  (import "engine" "JS_NewUint8ArrayCopy" (func $JS_NewUint8ArrayCopy (param i32 i32 i32) (result i64)))
  (import "engine" "js_malloc" (func $js_malloc (param i32 i32) (result i32)))
  (import "engine" "js_free" (func $js_free (param i32 i32)))
  (import "wasi_snapshot_preview1" "clock_time_get" (func $clock_time_get (param i32 i64 i32) (result i32)))

  ;; WASI writes the time into the memory its caller exports.
  (export "memory" (memory $memory))

  ;; Set once per instance by `bind`, or at the start of an entry; nothing here outlives a turn, so nothing here is part
  ;; of a snapshot.
  (global $ctx (mut i32) (i32.const 0))
  (global $rt (mut i32) (i32.const 0))
  (global $scratch (mut i32) (i32.const 0))   ;; guest memory that is ours, see below
  (global $state (mut i32) (i32.const 0))     ;; likewise, but part of a snapshot; see the natives
  (global $tracker (mut i64) (i64.const 0))   ;; the prelude's onRejection
  (global $denial (mut i64) (i64.const 0))    ;; the prelude's moduleDenied
  (global $deadline (mut i64) (i64.const -1)) ;; on the monotonic clock, in nanoseconds; unsigned
  (global $stopped (mut i32) (i32.const 0))   ;; the deadline was met since `arm`

  (func (export "bind")
    (param $ctx i32) (param $rt i32) (param $scratch i32) (param $state i32) (param $tracker i64) (param $denial i64)
    (global.set $ctx (local.get $ctx))
    (global.set $rt (local.get $rt))
    (global.set $scratch (local.get $scratch))
    (global.set $state (local.get $state))
    (global.set $tracker (local.get $tracker))
    (global.set $denial (local.get $denial)))

  (func $now (result i64)
    (drop (call $clock_time_get (i32.const 1) (i64.const 0) (global.get $scratch)))
    (i64.load (global.get $scratch)))

  ;; Scratch: 0 time, 8 length of the collected text, 12 its address, 16 arguments of the tracker, 40 argument of an
  ;; entry, 48 context of a job, 56 set by the host, from another thread, to stop what runs, 64 short messages.
  (func $arm (param $budget i64)
    (global.set $stopped (i32.const 0))
    (global.set $deadline (i64.add (call $now) (local.get $budget))))

  (func $on_interrupt (param $rt i32) (param $opaque i32) (result i32)
    (global.set $stopped
      (i32.or
        (i32.load offset=56 (global.get $scratch))
        (i64.ge_u (call $now) (global.get $deadline))))
    (global.get $stopped))

  (func $on_rejection (param $ctx i32) (param $promise i64) (param $reason i64) (param $handled i32) (param $opaque i32)
    (local $argv i32)
    (local $result i64)
    (if (i64.eqz (global.get $tracker)) (then (return)))
    (local.set $argv (i32.add (global.get $scratch) (i32.const 16)))
    (i64.store (local.get $argv) (local.get $promise))
    (i64.store offset=8 (local.get $argv) (local.get $reason))
    (i64.store offset=16 (local.get $argv)
      (i64.or (i64.const 0x100000000) (i64.extend_i32_u (i32.ne (local.get $handled) (i32.const 0)))))
    (local.set $result
      (call $JS_Call (local.get $ctx) (global.get $tracker) (i64.const 0x300000000) (i32.const 3) (local.get $argv)))
    (if (call $is_exception (local.get $result))
      (then (call $JS_FreeValue (local.get $ctx) (call $JS_GetException (local.get $ctx))))
      (else (call $JS_FreeValue (local.get $ctx) (local.get $result)))))

  ;; The module loader: there are none. The prelude makes the error, so that it is known as ours.
  (func $on_module (param $ctx i32) (param $name i32) (param $opaque i32) (result i32)
    (local $error i64)
    (local.set $error
      (call $JS_Call (local.get $ctx) (global.get $denial) (i64.const 0x300000000) (i32.const 0) (i32.const 0)))
    (if (i32.eqz (call $is_exception (local.get $error)))
      (then (drop (call $JS_Throw (local.get $ctx) (local.get $error)))))
    (i32.const 0))

  (elem (table 0) (offset (i32.const 580)) func $on_interrupt $on_rejection $on_module
    $seed $random $random_bytes $random_uuid $encode_utf8 $decode_utf8)

  (func $is_exception (param $value i64) (result i32)
    (i64.eq (i64.shr_u (local.get $value) (i64.const 32)) (i64.const 6)))

  ;; fn(argument); 1 when it threw, the exception left pending.
  (func $call1 (param $fn i64) (param $argument i64) (result i32)
    (local $argv i32)
    (local $result i64)
    (local.set $argv (i32.add (global.get $scratch) (i32.const 40)))
    (i64.store (local.get $argv) (local.get $argument))
    (local.set $result
      (call $JS_Call (global.get $ctx) (local.get $fn) (i64.const 0x300000000) (i32.const 1) (local.get $argv)))
    (if (result i32) (call $is_exception (local.get $result))
      (then (i32.const 1))
      (else
        (call $JS_FreeValue (global.get $ctx) (local.get $result))
        (i32.const 0))))

  (func $drop_exception
    (call $JS_FreeValue (global.get $ctx) (call $JS_GetException (global.get $ctx))))

  ;; entry(input), then the job queue until it is dry, then `collect` with a budget of its own.
  ;; 0 at rest, the text collected; 3 likewise but without a text; 1 an exception is pending; 2 likewise, because the
  ;; budget (nanoseconds) was used up or the host said so; 4 and 7 as 0 and 3, but that was so too, and something in the
  ;; program swallowed it, as executors of promises do.
  (func (export "run")
    (param $entry i64) (param $input i32) (param $length i32) (param $budget i64) (param $fn i64) (param $grace i64)
    (result i32)
    (local $text i64)
    (local $threw i32)
    (local $status i32)
    (call $arm (local.get $budget))
    (local.set $text (call $JS_NewStringLen (global.get $ctx) (local.get $input) (local.get $length)))
    (if (call $is_exception (local.get $text)) (then (return (i32.const 1))))
    (local.set $threw (call $call1 (local.get $entry) (local.get $text)))
    (call $JS_FreeValue (global.get $ctx) (local.get $text))
    (if (i32.eqz (local.get $threw))
      (then
        (loop $jobs
          (local.set $status
            (call $JS_ExecutePendingJob (global.get $rt) (i32.add (global.get $scratch) (i32.const 48))))
          (br_if $jobs (i32.gt_s (local.get $status) (i32.const 0))))
        (if (i32.eqz (local.get $status))
          (then
            (local.set $status (i32.shl (global.get $stopped) (i32.const 2)))
            (return
              (i32.add
                (local.get $status)
                (select (i32.const 0) (i32.const 3) (call $collect (local.get $fn) (local.get $grace)))))))))
    (local.set $status (i32.add (i32.const 1) (call $on_interrupt (i32.const 0) (i32.const 0))))
    (i32.store offset=56 (global.get $scratch) (i32.const 0))
    (local.get $status))

  ;; Hand the pending exception to the prelude's `fault`; a failure of that is dropped.
  (func (export "report") (param $fault i64) (param $budget i64)
    (local $exception i64)
    (call $arm (local.get $budget))
    (local.set $exception (call $JS_GetException (global.get $ctx)))
    (if (call $call1 (local.get $fault) (local.get $exception)) (then (call $drop_exception)))
    (call $JS_FreeValue (global.get $ctx) (local.get $exception)))

  ;; collect() as text: its length at scratch + 8, its address at scratch + 12, until `release`. 0 when it threw.
  (func $collect (export "collect") (param $fn i64) (param $budget i64) (result i32)
    (local $result i64)
    (local $text i32)
    (call $release)
    (call $arm (local.get $budget))
    (local.set $result
      (call $JS_Call (global.get $ctx) (local.get $fn) (i64.const 0x300000000) (i32.const 0) (i32.const 0)))
    (if (call $is_exception (local.get $result)) (then (call $drop_exception) (return (i32.const 0))))
    (local.set $text
      (call $JS_ToCStringLen2
        (global.get $ctx) (i32.add (global.get $scratch) (i32.const 8)) (local.get $result) (i32.const 0)))
    (call $JS_FreeValue (global.get $ctx) (local.get $result))
    (if (i32.eqz (local.get $text)) (then (call $drop_exception)))
    (i32.store offset=12 (global.get $scratch) (local.get $text))
    (i32.ne (local.get $text) (i32.const 0)))

  ;; Free the collected text, if there is one.
  (func $release (export "release")
    (if (i32.load offset=12 (global.get $scratch))
      (then
        (call $JS_FreeCString (global.get $ctx) (i32.load offset=12 (global.get $scratch)))
        (i32.store offset=12 (global.get $scratch) (i32.const 0)))))

  ;; The natives: C functions for the prelude, which keeps all but `random` and `random_uuid` from programs. They make new
  ;; values and read what the prelude has made for them; none writes to memory that a program holds. In the table they
  ;; follow the three above, in the order of `engine.NATIVES`.
  ;; State: 0 ChaCha20's state, 64 its last block, 128 how many bytes of that are left, 136 a size, 160 a UUID as text.

  (func $undefined (result i64) (i64.const 0x300000000))
  (func $exception (result i64) (i64.const 0x600000000))

  ;; Argument `n` of a native.
  (func $argument (param $argv i32) (param $n i32) (result i64)
    (i64.load (i32.add (local.get $argv) (i32.shl (local.get $n) (i32.const 3)))))

  ;; seed(bytes): begin with a key of 32 bytes.
  (func $seed (param $ctx i32) (param $this i64) (param $argc i32) (param $argv i32) (result i64)
    (local $bytes i32)
    (local.set $bytes
      (call $JS_GetUint8Array
        (local.get $ctx) (i32.add (global.get $state) (i32.const 136)) (i64.load (local.get $argv))))
    (if (i32.ne (i32.load offset=136 (global.get $state)) (i32.const 32)) (then (unreachable)))
    (i64.store (global.get $state) (i64.const 0x3320646e61707865))
    (i64.store offset=8 (global.get $state) (i64.const 0x6b20657479622d32))
    (memory.copy (i32.add (global.get $state) (i32.const 16)) (local.get $bytes) (i32.const 32))
    (memory.fill (i32.add (global.get $state) (i32.const 48)) (i32.const 0) (i32.const 84))
    (call $undefined))

  ;; The next block of ChaCha20 (RFC 8439), a row of its matrix in each register. Counter and nonce are one counter of
  ;; 64 bits and zeros: a key is of one run.
  (func $block
    (local $a v128)
    (local $b v128)
    (local $c v128)
    (local $d v128)
    (local $round i32)
    (local.set $a (v128.load (global.get $state)))
    (local.set $b (v128.load offset=16 (global.get $state)))
    (local.set $c (v128.load offset=32 (global.get $state)))
    (local.set $d (v128.load offset=48 (global.get $state)))
    (loop $rounds
      ;; Columns; then the diagonals are turned into columns.
      (local.set $a (i32x4.add (local.get $a) (local.get $b)))
      (local.set $d (v128.xor (local.get $d) (local.get $a)))
      (local.set $d
        (v128.or (i32x4.shl (local.get $d) (i32.const 16)) (i32x4.shr_u (local.get $d) (i32.const 16))))
      (local.set $c (i32x4.add (local.get $c) (local.get $d)))
      (local.set $b (v128.xor (local.get $b) (local.get $c)))
      (local.set $b
        (v128.or (i32x4.shl (local.get $b) (i32.const 12)) (i32x4.shr_u (local.get $b) (i32.const 20))))
      (local.set $a (i32x4.add (local.get $a) (local.get $b)))
      (local.set $d (v128.xor (local.get $d) (local.get $a)))
      (local.set $d
        (v128.or (i32x4.shl (local.get $d) (i32.const 8)) (i32x4.shr_u (local.get $d) (i32.const 24))))
      (local.set $c (i32x4.add (local.get $c) (local.get $d)))
      (local.set $b (v128.xor (local.get $b) (local.get $c)))
      (local.set $b
        (v128.or (i32x4.shl (local.get $b) (i32.const 7)) (i32x4.shr_u (local.get $b) (i32.const 25))))
      (local.set $b (i8x16.shuffle 4 5 6 7 8 9 10 11 12 13 14 15 0 1 2 3 (local.get $b) (local.get $b)))
      (local.set $c (i8x16.shuffle 8 9 10 11 12 13 14 15 0 1 2 3 4 5 6 7 (local.get $c) (local.get $c)))
      (local.set $d (i8x16.shuffle 12 13 14 15 0 1 2 3 4 5 6 7 8 9 10 11 (local.get $d) (local.get $d)))
      ;; Diagonals, and back.
      (local.set $a (i32x4.add (local.get $a) (local.get $b)))
      (local.set $d (v128.xor (local.get $d) (local.get $a)))
      (local.set $d
        (v128.or (i32x4.shl (local.get $d) (i32.const 16)) (i32x4.shr_u (local.get $d) (i32.const 16))))
      (local.set $c (i32x4.add (local.get $c) (local.get $d)))
      (local.set $b (v128.xor (local.get $b) (local.get $c)))
      (local.set $b
        (v128.or (i32x4.shl (local.get $b) (i32.const 12)) (i32x4.shr_u (local.get $b) (i32.const 20))))
      (local.set $a (i32x4.add (local.get $a) (local.get $b)))
      (local.set $d (v128.xor (local.get $d) (local.get $a)))
      (local.set $d
        (v128.or (i32x4.shl (local.get $d) (i32.const 8)) (i32x4.shr_u (local.get $d) (i32.const 24))))
      (local.set $c (i32x4.add (local.get $c) (local.get $d)))
      (local.set $b (v128.xor (local.get $b) (local.get $c)))
      (local.set $b
        (v128.or (i32x4.shl (local.get $b) (i32.const 7)) (i32x4.shr_u (local.get $b) (i32.const 25))))
      (local.set $b (i8x16.shuffle 12 13 14 15 0 1 2 3 4 5 6 7 8 9 10 11 (local.get $b) (local.get $b)))
      (local.set $c (i8x16.shuffle 8 9 10 11 12 13 14 15 0 1 2 3 4 5 6 7 (local.get $c) (local.get $c)))
      (local.set $d (i8x16.shuffle 4 5 6 7 8 9 10 11 12 13 14 15 0 1 2 3 (local.get $d) (local.get $d)))
      (local.set $round (i32.add (local.get $round) (i32.const 1)))
      (br_if $rounds (i32.lt_u (local.get $round) (i32.const 10))))
    (v128.store offset=64 (global.get $state) (i32x4.add (local.get $a) (v128.load (global.get $state))))
    (v128.store offset=80 (global.get $state) (i32x4.add (local.get $b) (v128.load offset=16 (global.get $state))))
    (v128.store offset=96 (global.get $state) (i32x4.add (local.get $c) (v128.load offset=32 (global.get $state))))
    (v128.store offset=112 (global.get $state) (i32x4.add (local.get $d) (v128.load offset=48 (global.get $state))))
    (i64.store offset=48 (global.get $state) (i64.add (i64.load offset=48 (global.get $state)) (i64.const 1)))
    (i32.store offset=128 (global.get $state) (i32.const 64)))

  (func $next_word (result i64)
    (local $left i32)
    (if (i32.eqz (i32.load offset=128 (global.get $state))) (then (call $block)))
    (local.set $left (i32.load offset=128 (global.get $state)))
    (i32.store offset=128 (global.get $state) (i32.sub (local.get $left) (i32.const 8)))
    (i64.load offset=128 (i32.sub (global.get $state) (local.get $left))))

  ;; random(): 53 bits, from 0 to below 1.
  (func $random (param $ctx i32) (param $this i64) (param $argc i32) (param $argv i32) (result i64)
    (call $JS_NewNumber (local.get $ctx)
      (f64.mul (f64.convert_i64_u (i64.shr_u (call $next_word) (i64.const 11))) (f64.const 0x1p-53))))

  ;; randomBytes(n), a Uint8Array.
  (func $random_bytes (param $ctx i32) (param $this i64) (param $argc i32) (param $argv i32) (result i64)
    (local $bytes i32)
    (local $size i32)
    (local $at i32)
    (local $value i64)
    (if (call $JS_ToInt32 (local.get $ctx) (i32.add (global.get $state) (i32.const 136)) (i64.load (local.get $argv)))
      (then (return (call $exception))))
    ;; Whole words are drawn, into a buffer with room for the last one.
    (local.set $size (i32.load offset=136 (global.get $state)))
    (local.set $bytes (call $js_malloc (local.get $ctx) (i32.add (local.get $size) (i32.const 8))))
    (if (i32.eqz (local.get $bytes)) (then (return (call $exception))))
    (loop $words
      (i64.store (i32.add (local.get $bytes) (local.get $at)) (call $next_word))
      (local.set $at (i32.add (local.get $at) (i32.const 8)))
      (br_if $words (i32.lt_u (local.get $at) (local.get $size))))
    (local.set $value (call $JS_NewUint8ArrayCopy (local.get $ctx) (local.get $bytes) (local.get $size)))
    (call $js_free (local.get $ctx) (local.get $bytes))
    (local.get $value))

  ;; randomUUID(), of version 4.
  (func $random_uuid (param $ctx i32) (param $this i64) (param $argc i32) (param $argv i32) (result i64)
    (local $text i32)
    (local $digit i32)
    (local $i i32)
    (local $bits i64)
    (local.set $text (i32.add (global.get $state) (i32.const 160)))
    (loop $characters
      (if (i32.eqz (i32.and (local.get $i) (i32.const 15))) (then (local.set $bits (call $next_word))))
      (local.set $digit (i32.and (i32.wrap_i64 (local.get $bits)) (i32.const 15)))
      (local.set $bits (i64.shr_u (local.get $bits) (i64.const 4)))
      (if (i32.eq (local.get $i) (i32.const 12)) (then (local.set $digit (i32.const 4))))
      (if (i32.eq (local.get $i) (i32.const 16))
        (then (local.set $digit (i32.or (i32.const 8) (i32.and (local.get $digit) (i32.const 3))))))
      (if
        (i32.or
          (i32.or (i32.eq (local.get $i) (i32.const 8)) (i32.eq (local.get $i) (i32.const 12)))
          (i32.or (i32.eq (local.get $i) (i32.const 16)) (i32.eq (local.get $i) (i32.const 20))))
        (then
          (i32.store8 (local.get $text) (i32.const 45))
          (local.set $text (i32.add (local.get $text) (i32.const 1)))))
      (i32.store8 (local.get $text)
        (i32.add
          (local.get $digit)
          (select (i32.const 87) (i32.const 48) (i32.gt_u (local.get $digit) (i32.const 9)))))
      (local.set $text (i32.add (local.get $text) (i32.const 1)))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br_if $characters (i32.lt_u (local.get $i) (i32.const 32))))
    (call $JS_NewStringLen (local.get $ctx) (i32.add (global.get $state) (i32.const 160)) (i32.const 36)))

  ;; encodeUtf8(text), a Uint8Array. The text has no lone surrogates.
  (func $encode_utf8 (param $ctx i32) (param $this i64) (param $argc i32) (param $argv i32) (result i64)
    (local $bytes i32)
    (local $value i64)
    (local.set $bytes
      (call $JS_ToCStringLen2
        (local.get $ctx) (i32.add (global.get $state) (i32.const 136)) (i64.load (local.get $argv)) (i32.const 0)))
    (if (i32.eqz (local.get $bytes)) (then (return (call $exception))))
    (local.set $value
      (call $JS_NewUint8ArrayCopy (local.get $ctx) (local.get $bytes) (i32.load offset=136 (global.get $state))))
    (call $JS_FreeCString (local.get $ctx) (local.get $bytes))
    (local.get $value))

  ;; decodeUtf8(bytes, fatal): a string, with U+FFFD for what is malformed; null where something is and that is fatal.
  (func $decode_utf8 (param $ctx i32) (param $this i64) (param $argc i32) (param $argv i32) (result i64)
    (local $bytes i32)
    (local $size i32)
    (local $mended i32)
    (local $value i64)
    (local.set $bytes
      (call $JS_GetUint8Array
        (local.get $ctx) (i32.add (global.get $state) (i32.const 136)) (i64.load (local.get $argv))))
    (if (i32.eqz (local.get $bytes)) (then (return (call $exception))))
    (local.set $size (i32.load offset=136 (global.get $state)))
    (local.set $mended (call $mend_utf8 (local.get $bytes) (local.get $size) (i32.const 0)))
    (if (i32.eq (local.get $mended) (i32.const -1))
      (then (return (call $JS_NewStringLen (local.get $ctx) (local.get $bytes) (local.get $size)))))
    (if (call $JS_ToBool (local.get $ctx) (call $argument (local.get $argv) (i32.const 1)))
      (then (return (i64.const 0x200000000))))
    (local.set $mended (call $js_malloc (local.get $ctx) (local.get $mended)))
    (if (i32.eqz (local.get $mended)) (then (return (call $exception))))
    (local.set $size (call $mend_utf8 (local.get $bytes) (local.get $size) (local.get $mended)))
    (local.set $value (call $JS_NewStringLen (local.get $ctx) (local.get $mended) (local.get $size)))
    (call $js_free (local.get $ctx) (local.get $mended))
    (local.get $value))

  ;; Copy UTF-8 to `to`, unless that is 0. A malformed sequence is replaced up to, not including, the first byte that breaks
  ;; it (WHATWG Encoding, 8.1.1). The size of the copy, or -1 when it is the same.
  (func $mend_utf8 (param $from i32) (param $size i32) (param $to i32) (result i32)
    (local $end i32)
    (local $next i32)
    (local $byte i32)
    (local $needed i32)
    (local $lower i32)
    (local $upper i32)
    (local $written i32)
    (local $malformed i32)
    (local.set $end (i32.add (local.get $from) (local.get $size)))
    (block $done
      (loop $sequences
        (block $other
          (loop $ascii
            (br_if $other (i32.gt_u (i32.add (local.get $from) (i32.const 8)) (local.get $end)))
            (br_if $other
              (i64.ne (i64.and (i64.load (local.get $from)) (i64.const 0x8080808080808080)) (i64.const 0)))
            (if (local.get $to)
              (then (i64.store (i32.add (local.get $to) (local.get $written)) (i64.load (local.get $from)))))
            (local.set $from (i32.add (local.get $from) (i32.const 8)))
            (local.set $written (i32.add (local.get $written) (i32.const 8)))
            (br $ascii)))
        (br_if $done (i32.ge_u (local.get $from) (local.get $end)))
        (local.set $byte (i32.load8_u (local.get $from)))
        (local.set $next (i32.add (local.get $from) (i32.const 1)))
        (local.set $lower (i32.const 0x80))
        (local.set $upper (i32.const 0xbf))
        (local.set $needed
          (if (result i32) (i32.lt_u (local.get $byte) (i32.const 0xe0))
            (then (i32.ge_u (local.get $byte) (i32.const 0x80)))
            (else (select (i32.const 2) (i32.const 3) (i32.lt_u (local.get $byte) (i32.const 0xf0))))))
        ;; No overlong forms, no surrogates, nothing above U+10FFFF.
        (if (i32.eq (local.get $byte) (i32.const 0xe0)) (then (local.set $lower (i32.const 0xa0))))
        (if (i32.eq (local.get $byte) (i32.const 0xed)) (then (local.set $upper (i32.const 0x9f))))
        (if (i32.eq (local.get $byte) (i32.const 0xf0)) (then (local.set $lower (i32.const 0x90))))
        (if (i32.eq (local.get $byte) (i32.const 0xf4)) (then (local.set $upper (i32.const 0x8f))))
        ;; What begins no sequence: a range that nothing is in.
        (if
          (i32.or
            (i32.and
              (i32.ge_u (local.get $byte) (i32.const 0x80))
              (i32.lt_u (local.get $byte) (i32.const 0xc2)))
            (i32.gt_u (local.get $byte) (i32.const 0xf4)))
          (then (local.set $lower (i32.const 0x100))))
        (block $broken
          (loop $trail
            (br_if $broken (i32.eqz (local.get $needed)))
            (br_if $broken (i32.ge_u (local.get $next) (local.get $end)))
            (local.set $byte (i32.load8_u (local.get $next)))
            (br_if $broken (i32.lt_u (local.get $byte) (local.get $lower)))
            (br_if $broken (i32.gt_u (local.get $byte) (local.get $upper)))
            (local.set $lower (i32.const 0x80))
            (local.set $upper (i32.const 0xbf))
            (local.set $needed (i32.sub (local.get $needed) (i32.const 1)))
            (local.set $next (i32.add (local.get $next) (i32.const 1)))
            (br $trail)))
        (if (local.get $needed)
          (then
            (local.set $malformed (i32.const 1))
            (if (local.get $to)
              (then
                (i32.store16 (i32.add (local.get $to) (local.get $written)) (i32.const 0xbfef))
                (i32.store8 offset=2 (i32.add (local.get $to) (local.get $written)) (i32.const 0xbd))))
            (local.set $written (i32.add (local.get $written) (i32.const 3))))
          (else
            (local.set $size (i32.sub (local.get $next) (local.get $from)))
            (if (local.get $to)
              (then
                (memory.copy
                  (i32.add (local.get $to) (local.get $written)) (local.get $from) (local.get $size))))
            (local.set $written (i32.add (local.get $written) (local.get $size)))))
        (local.set $from (local.get $next))
        (br $sequences)))
    (select (local.get $written) (i32.const -1) (local.get $malformed)))
)
