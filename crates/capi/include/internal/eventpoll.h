/*
 * A header that mTCP has among its sources and that programs in its tree include. What it declares there is the inside of mTCP's epoll, which is another one here;
 * what programs use of it is the API.
 */
#ifndef EVENTPOLL_H
#define EVENTPOLL_H

#include "mtcp_api.h"
#include "mtcp_epoll.h"

#endif
